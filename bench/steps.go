package bench

import (
	"context"
	"fmt"

	"windrow/engine"
)

// Steps times steps of 1, 16 and 32 rows at a context and a prefill of as many
// tokens. It returns them in a line for people, and the rate at which the step of
// one row reads, in GB/s.
func Steps(ctx context.Context, e *engine.Engine, context int) (line string, rate float64, err error) {
	s := e.NewStopwatch(timed)
	defer s.Close()
	line = "ms:"
	for _, rows := range []int{1, 16, 32} {
		t, err := s.Step(ctx, rows, context)
		if err != nil {
			return "", 0, err
		}
		if rows == 1 {
			rate = float64(s.StepBytes(context)) / t / 1e9
		}
		line += fmt.Sprintf(" %d rows %.2f,", rows, 1000*t)
	}
	tokens, err := s.Prefill(ctx, context)
	return fmt.Sprintf("%s prefill of %d %.0f tokens/s", line, context, tokens), rate, err
}
