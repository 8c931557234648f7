package vectors

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"windrow/backend"
)

// Logits says what rows of logits are like, and what is wanted of them.
type Logits struct {
	Vocab, Top, Limit, Except int
	Grain                     float64 // logits are multiples of it: ties; 0: as they come
	Spread                    float64
}

// Cases are those that every device takes; Top is at most 64.
var Cases = []Logits{
	{Vocab: 1, Top: 1, Except: -1},
	{Vocab: 7, Top: 7, Except: 3},
	{Vocab: 512, Top: 64, Except: -1, Spread: 3},
	{Vocab: 513, Top: 5, Limit: 512, Except: 0, Grain: 0.5, Spread: 3},
	{Vocab: 2000, Top: 64, Limit: 40, Except: 7, Spread: 5},
	{Vocab: 4096, Top: 33, Except: -1, Grain: 1, Spread: 1},
	{Vocab: 4096, Top: 64, Except: 1, Grain: 1e9, Spread: 1}, // all equal
}

// Rows makes rows of logits. In row 1 of a wide vocabulary a chunk of 512, and
// half of another, are −∞. A grain of 1e9 leaves zeros of both signs.
func (c Logits) Rows(r *rand.Rand, rows int) []float32 {
	var all []float32
	for row := range rows {
		z := Normals(r, c.Vocab)
		for i, v := range z {
			y := float64(v) * max(c.Spread, 1)
			if c.Grain > 0 {
				y = math.Round(y/c.Grain) * c.Grain
			}
			z[i] = float32(y)
		}
		if row == 1 && c.Vocab > 600 {
			for j := range 300 {
				z[j] = float32(math.Inf(-1))
			}
			for j := 512; j < min(1024, c.Vocab); j++ {
				z[j] = float32(math.Inf(-1))
			}
		}
		all = append(all, z...)
	}
	return all
}

// Hold compares a row's result with the definition in float64.
func (c Logits) Hold(got backend.Result, z []float32) error {
	peak := math.Inf(-1)
	for _, v := range z {
		peak = max(peak, float64(v))
	}
	var s0, s1 float64
	for _, v := range z {
		if e := math.Exp(float64(v) - peak); e != 0 {
			s0 += e
			s1 += e * (float64(v) - peak)
		}
	}
	entropy, sum := math.Log(s0)-s1/s0, peak+math.Log(s0)
	if d := math.Abs(float64(got.Entropy) - entropy); !(d <= 2e-6*max(1, entropy)) {
		return fmt.Errorf("entropy %v, want %v", got.Entropy, entropy)
	}
	if d := math.Abs(float64(got.LogSumExp) - sum); !(d <= 1e-6*max(1, math.Abs(sum))) {
		return fmt.Errorf("log-sum-exp %v, want %v", got.LogSumExp, sum)
	}
	var want []backend.Candidate // the definition: taken in the order of ids, put before what is smaller
	for id, v := range z {
		if c.Limit > 0 && id >= c.Limit || id == c.Except {
			continue
		}
		at := len(want)
		for at > 0 && v > want[at-1].Logit {
			at--
		}
		if at < c.Top {
			want = slices.Insert(want, at, backend.Candidate{ID: int32(id), Logit: v})
			want = want[:min(len(want), c.Top)]
		}
	}
	if !slices.Equal(got.Top, want) {
		return fmt.Errorf("candidates %v, want %v", got.Top, want)
	}
	if len(want) > 0 && got.Argmax != want[0].ID {
		return fmt.Errorf("argmax %d, want %d", got.Argmax, want[0].ID)
	}
	return nil
}
