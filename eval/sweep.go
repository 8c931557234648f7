package eval

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"windrow/decoder"
)

// Grid is a sweep: every window × entropy threshold × position penalty in one
// mode, with ar in front as what they are compared with.
type Grid struct {
	Mode       decoder.Mode // wedlm or verified
	Windows    []int
	Thresholds []*float32 // nil: one token per step
	Penalties  []float32
}

// maxGrid bounds a sweep; more is a slip in the lists, not a plan.
const maxGrid = 1000

// ParseGrid reads a sweep from comma-separated lists such as "8,16,32",
// "0.1,0.4,none" and "0,0.02".
func ParseGrid(mode decoder.Mode, windows, thresholds, penalties string) (Grid, error) {
	g := Grid{Mode: mode}
	if mode != decoder.WeDLM && mode != decoder.Verified {
		return g, fmt.Errorf("sweep in mode %q: want %s or %s", mode, decoder.WeDLM, decoder.Verified)
	}
	for _, s := range strings.Split(windows, ",") {
		w, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || w < 1 || w > maxWindow {
			return g, fmt.Errorf("sweep window %q: want a number from 1 to %d", s, maxWindow)
		}
		g.Windows = append(g.Windows, w)
	}
	for _, s := range strings.Split(thresholds, ",") {
		if strings.TrimSpace(s) == "none" {
			g.Thresholds = append(g.Thresholds, nil)
			continue
		}
		t, err := parseFloat("entropy threshold", s)
		if err != nil {
			return g, err
		}
		g.Thresholds = append(g.Thresholds, &t)
	}
	for _, s := range strings.Split(penalties, ",") {
		p, err := parseFloat("position penalty", s)
		if err != nil {
			return g, err
		}
		g.Penalties = append(g.Penalties, p)
	}
	if n := len(g.Windows) * len(g.Thresholds) * len(g.Penalties); n > maxGrid {
		return g, fmt.Errorf("sweep of %d settings: want at most %d", n, maxGrid)
	}
	if _, err := checkSettings(g.Settings()); err != nil {
		return g, fmt.Errorf("sweep: %w", err)
	}
	return g, nil
}

func parseFloat(what, s string) (float32, error) {
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 32)
	if err != nil || !(f >= 0 && f <= math.MaxFloat32) {
		return 0, fmt.Errorf("sweep %s %q: want a finite number from 0", what, s)
	}
	return float32(f), nil
}

// Settings are ar and the grid's settings, the threshold varying fastest.
func (g Grid) Settings() []Setting {
	all := []Setting{{Mode: decoder.AR}}
	for _, w := range g.Windows {
		for _, p := range g.Penalties {
			for _, t := range g.Thresholds {
				all = append(all, Setting{Mode: g.Mode, Window: w, EntropyThreshold: t, PosPenalty: p})
			}
		}
	}
	return all
}

// markFrontier marks the settings that no other beats in accuracy without
// losing tokens per forward, or the other way round.
func markFrontier(all []SettingReport) {
	for i := range all {
		a := &all[i]
		a.Frontier = a.N > 0
		for j := range all {
			b := all[j]
			if b.N > 0 && b.Accuracy >= a.Accuracy && b.TokensPerForward >= a.TokensPerForward &&
				(b.Accuracy > a.Accuracy || b.TokensPerForward > a.TokensPerForward) {
				a.Frontier = false
			}
		}
	}
}
