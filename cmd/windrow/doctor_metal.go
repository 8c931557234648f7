package main

import (
	"context"
	"fmt"
	"regexp"
	"runtime"

	"windrow/backend"
	checks "windrow/backend/doctor"
	"windrow/bench"
	"windrow/engine"
	"windrow/metal"
	"windrow/synthetic"
)

// examinedSteps are models whose steps the doctor times, with random weights.
var examinedSteps = []struct {
	shape string
	dtype backend.DType
}{
	{"qwen3-0.6b", backend.BF16},
	{"qwen3-1.7b", backend.Affine4},
	{"qwen3-1.7b", backend.BF16},
}

// examineMetal examines an Apple GPU: what package metal tests of it, then
// whole steps of models.
func examineMetal(ctx context.Context, r *doctorReport, only *regexp.Regexp) error {
	if runtime.GOOS != "darwin" {
		return fmt.Errorf("metal: for Apple GPUs under macOS; this is %s", runtime.GOOS)
	}
	if _, err := metal.Doctor(checks.Options{Only: only, Report: r.add}); err != nil {
		return err
	}
	for _, s := range examinedSteps {
		name := fmt.Sprintf("steps %s %v", s.shape, s.dtype)
		if !only.MatchString(name) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		r.add(examineStep(ctx, name, s.shape, s.dtype, engine.Options{Backend: engine.Metal, Measurements: measurements()}))
	}
	return nil
}

// stepContext is the tokens in the cache of a step that is timed.
const stepContext = 512

// examineStep times steps of a model of random weights.
func examineStep(ctx context.Context, name, shape string, dtype backend.DType, o engine.Options) checks.Check {
	return checks.Timed(name, func(c *checks.Check) error {
		config, ok := synthetic.ShapeConfig(shape)
		if !ok {
			return fmt.Errorf("no shape %s", shape)
		}
		e, err := engine.OpenSource(ctx, shape, synthetic.RandomSource(config, dtype, 1), o)
		if err != nil {
			return err
		}
		defer e.Close()
		c.Detail, c.Rate, err = bench.Steps(ctx, e, stepContext)
		return err
	})
}
