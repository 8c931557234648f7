package main

import (
	"context"
	"fmt"
	"regexp"
	"runtime"

	"windrow/backend"
	checks "windrow/backend/doctor"
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
		machine := machineOptions{backend: backendMetal, kv: backend.KVBF16}
		r.add(examineStep(ctx, name, s.shape, s.dtype, machine))
	}
	return nil
}

// stepContext is the tokens in the cache of a step that is timed.
const stepContext = 512

// examineStep times steps of 1, 16 and 32 rows and a prefill.
func examineStep(ctx context.Context, name, shape string, dtype backend.DType, machine machineOptions) checks.Check {
	return checks.Timed(name, func(c *checks.Check) (err error) {
		c.Detail, c.Rate, err = stepTimes(ctx, shape, dtype, machine)
		return err
	})
}

// stepTimes also returns the rate at which a step of one row reads, in GB/s.
func stepTimes(ctx context.Context, shape string, dtype backend.DType, machine machineOptions) (detail string, rate float64, err error) {
	config, ok := synthetic.ShapeConfig(shape)
	if !ok {
		return "", 0, fmt.Errorf("no shape %s", shape)
	}
	e, src, err := openShape(ctx, shape, config, dtype, machine)
	if err != nil {
		return "", 0, err
	}
	defer e.Close()
	s := newStopwatch(e, timed)
	defer s.Close()
	detail = "ms:"
	for _, rows := range []int{1, 16, 32} {
		t, err := s.step(ctx, rows, stepContext)
		if err != nil {
			return "", 0, err
		}
		if rows == 1 {
			rate = float64(s.stepBytes(src, stepContext)) / t / 1e9
		}
		detail += fmt.Sprintf(" %d rows %.2f,", rows, 1000*t)
	}
	tokens, err := s.prefill(ctx, stepContext)
	return fmt.Sprintf("%s prefill of %d %.0f tokens/s", detail, stepContext, tokens), rate, err
}
