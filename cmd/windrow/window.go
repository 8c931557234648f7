package main

import (
	"context"
	"strconv"

	"github.com/urfave/cli/v2"

	"windrow/decoder"
	"windrow/engine"
)

// windowChoice is what --window says: how many slots, or auto.
type windowChoice struct {
	given, auto bool
	rule        bool // τ or λ is given
}

// parseWindow reads --window: a number of slots, auto, or nothing. The number
// is 16 for the latter two: the window of modes that do not adapt.
func parseWindow(c *cli.Context) (windowChoice, int, error) {
	s := c.String("window")
	w := windowChoice{given: c.IsSet("window"), auto: s == "auto", rule: ruleGiven(c)}
	if !w.given || w.auto {
		return w, defaultWindow, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return w, 0, usagef("invalid value %q for flag --window: want a number of slots, or auto", s)
	}
	return w, n, nil
}

// adaptive reports whether the window adapts. Where nothing was asked for,
// verified's does, as its text stays the same; wedlm's may depend on it.
func (w windowChoice) adaptive(o decoder.Options) bool {
	switch o.Mode {
	case decoder.Verified:
		return w.auto || !w.given
	case decoder.WeDLM:
		return w.auto
	}
	return false
}

// ruleGiven reports whether τ or λ is given: then no calibration replaces either.
func ruleGiven(c *cli.Context) bool { return c.IsSet("entropy-threshold") || c.IsSet("pos-penalty") }

// apply completes the options for their mode.
func (w windowChoice) apply(ctx context.Context, e *engine.Engine, o decoder.Options) decoder.Options {
	if !w.rule {
		o = e.Calibrated(o)
	}
	if !w.adaptive(o) {
		return o
	}
	return e.Adaptive(ctx, o)
}
