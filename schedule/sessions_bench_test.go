package schedule_test

import (
	"testing"

	"windrow/backend"
	"windrow/conformance/decodertest"
	"windrow/engine"
	"windrow/synthetic"
)

// talk is a conversation of so many pages with random weights of a shape.
type talk struct {
	shape string
	dtype backend.DType
	pages int
}

// benchTalks runs a benchmark for conversations of up to 20,000 tokens: on a GPU where
// WINDROW_CUDA_DEVICE has its number.
func benchTalks(b *testing.B, run func(b *testing.B, e *engine.Engine, tokens int)) {
	list := []talk{{"tiny-gsm", backend.BF16, 313}, {"qwen3-0.6b", backend.BF16, 47}}
	if decodertest.Device() != engine.CPU {
		list = []talk{{"tiny-gsm", backend.BF16, 313}, {"qwen3-8b", backend.Affine4, 313}}
	}
	for _, c := range list {
		b.Run(c.shape, func(b *testing.B) {
			config, _ := synthetic.ShapeConfig(c.shape)
			n := c.pages * backend.PageTokens
			config.MaxPositions = n + 1000
			e, err := engine.OpenSource(b.Context(), c.shape, synthetic.RandomSource(config, c.dtype, 1), engine.Options{Backend: decodertest.Device()})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close()
			for b.Loop() {
				run(b, e, n)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
