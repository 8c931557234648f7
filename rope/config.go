// Package rope makes the rotation tables of rotary position embeddings: for
// each logical position the cosines and sines that rotate a head's halves.
//
// It knows the default, linear and YaRN variants (arXiv 2309.00071), computed
// as Hugging Face transformers does, but in float64 up to the cosine: an angle
// of 40,000 radians in float32 is off by up to 0.002.
package rope

import (
	"errors"
	"fmt"
	"math"
)

// The rotation types of Config.Type.
const (
	Default = "default"
	Linear  = "linear" // positions divided by Factor
	YaRN    = "yarn"
)

// MaxHeadDim bounds Config.HeadDim; published models use 64 to 256.
const MaxHeadDim = 1024

// Config describes a rotation, under the names of a Hugging Face config.json.
// A zero in an optional field stands for "not given".
type Config struct {
	Type    string  // Default, Linear or YaRN; "" is Default
	HeadDim int     // the rotated width: even
	Theta   float64 // rope_theta, the base of the frequencies
	Factor  float64 // linear and yarn: by how much the context is stretched, at least 1

	// The rest is YaRN's.

	// OriginalMaxPositions is the context length before stretching.
	OriginalMaxPositions float64
	// BetaFast and BetaSlow bound the blended range, in rotations over the
	// original context (defaults 32 and 1).
	BetaFast, BetaSlow float64
	// AttentionFactor scales cosines and sines (default 0.1·ln(Factor) + 1, or
	// the ratio that Mscale and MscaleAllDim give where both are present).
	AttentionFactor      float64
	Mscale, MscaleAllDim float64
	// NoTruncate keeps the blended range's borders fractional ("truncate":
	// false).
	NoTruncate bool
}

// frequencies returns the angle per position of each of the HeadDim/2 pairs,
// and the factor on cosines and sines.
func (c Config) frequencies() (freq []float64, scale float64, err error) {
	if err := c.check(); err != nil {
		return nil, 0, err
	}
	freq = make([]float64, c.HeadDim/2)
	for i := range freq {
		freq[i] = math.Pow(c.Theta, -float64(2*i)/float64(c.HeadDim))
	}
	switch c.Type {
	case Linear:
		for i := range freq {
			freq[i] /= c.Factor
		}
	case YaRN:
		low, high := c.correctionRange()
		for i, f := range freq {
			stretch := min(max((float64(i)-low)/(high-low), 0), 1)
			freq[i] = f/c.Factor*stretch + f*(1-stretch)
		}
		return freq, c.attentionFactor(), nil
	}
	return freq, 1, nil
}

// correctionRange returns between which pairs YaRN goes over from the plain
// frequency to the stretched one.
func (c Config) correctionRange() (low, high float64) {
	dim := float64(c.HeadDim)
	pair := func(rotations float64) float64 {
		return dim * math.Log(c.OriginalMaxPositions/(rotations*2*math.Pi)) / (2 * math.Log(c.Theta))
	}
	low, high = pair(orDefault(c.BetaFast, 32)), pair(orDefault(c.BetaSlow, 1))
	if !c.NoTruncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, dim-1)
	if low == high {
		high += 0.001 // transformers' guard against a division by zero
	}
	return low, high
}

func (c Config) attentionFactor() float64 {
	if c.AttentionFactor != 0 {
		return c.AttentionFactor
	}
	mscale := func(m float64) float64 {
		if c.Factor <= 1 {
			return 1
		}
		return 0.1*m*math.Log(c.Factor) + 1
	}
	if c.Mscale != 0 && c.MscaleAllDim != 0 {
		return mscale(c.Mscale) / mscale(c.MscaleAllDim)
	}
	return mscale(1)
}

func (c Config) check() error {
	switch c.Type {
	case "", Default, Linear, YaRN:
	case "mrope":
		return errors.New("rope_type \"mrope\" rotates by image position: want a text model with default, linear or yarn")
	default:
		return fmt.Errorf("rope_type %.40q: want default, linear or yarn", c.Type)
	}
	if c.HeadDim < 2 || c.HeadDim%2 != 0 || c.HeadDim > MaxHeadDim {
		return fmt.Errorf("head_dim %d: want an even number from 2 to %d", c.HeadDim, MaxHeadDim)
	}
	if !between(c.Theta, 1, 1e15) || c.Theta == 1 {
		return fmt.Errorf("rope_theta %g: want a number above 1 and at most 1e15", c.Theta)
	}
	if c.Type != Linear && c.Type != YaRN {
		return nil
	}
	if !between(c.Factor, 1, 1e6) {
		return fmt.Errorf("rope factor %g: want a number from 1 to 1e6", c.Factor)
	}
	if c.Type == Linear {
		return nil
	}
	if !between(c.OriginalMaxPositions, 1, math.MaxInt32) {
		return fmt.Errorf("original_max_position_embeddings %g: want a number from 1 to 2147483647", c.OriginalMaxPositions)
	}
	fast, slow := orDefault(c.BetaFast, 32), orDefault(c.BetaSlow, 1)
	if !between(slow, 1e-3, 1e6) || !between(fast, slow, 1e6) {
		return fmt.Errorf("rope beta_fast %g and beta_slow %g: want 0.001 ≤ beta_slow ≤ beta_fast ≤ 1e6", fast, slow)
	}
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"attention_factor", c.AttentionFactor}, {"mscale", c.Mscale}, {"mscale_all_dim", c.MscaleAllDim},
	} {
		if f.value != 0 && !between(f.value, 1e-3, 1e3) {
			return fmt.Errorf("rope %s %g: want a number from 0.001 to 1000", f.name, f.value)
		}
	}
	// Both borders can fall on the same side of the head when the original
	// context is a handful of tokens; the blend would then run backwards.
	if low, high := c.correctionRange(); !(low < high) {
		return fmt.Errorf("yarn over original_max_position_embeddings %g with head_dim %d and rope_theta %g blends pairs %g to %g: want a longer original context",
			c.OriginalMaxPositions, c.HeadDim, c.Theta, low, high)
	}
	return nil
}

func between(x, low, high float64) bool { return x >= low && x <= high } // false for NaN

func orDefault(x, fallback float64) float64 {
	if x == 0 {
		return fallback
	}
	return x
}
