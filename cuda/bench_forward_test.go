package cuda

import (
	"testing"

	"windrow/backend"
	"windrow/conformance/backendtest"
	"windrow/cuda/emulator"
	"windrow/cuda/launch"
	"windrow/cuda/measure"
	"windrow/synthetic"
)

// meter measures a device.
type meter = measure.Meter[*launch.Device]

func newMeter(t testing.TB, d *launch.Device) meter {
	return measure.New(t, d, measure.GPU{Context: d.Context, Stream: d.Stream, Take: d.Take})
}

// needsGPU skips a benchmark where there is no GPU.
func needsGPU(b *testing.B) {
	b.Helper()
	if !emulator.OnGPU {
		b.Skip("measures a GPU: set WINDROW_CUDA_DEVICE to its number")
	}
}

// TestForwardBenchmarks runs the bodies of benchmarks of whole forwards at their
// smallest, on the emulated device too, as TestBenchmarks does those of launches.
func TestForwardBenchmarks(t *testing.T) {
	if testing.Short() {
		t.Skip("bodies of benchmarks: leave -short out")
	}
	t.Run("step", func(t *testing.T) { steps(t, tinyShape, []backend.DType{backend.Affine4}, []int{16}, 100) })
	t.Run("batch step", func(t *testing.T) { batchSteps(t, tinyShape, true, 2, 10, batchParts[:2]) })
	t.Run("prefill", func(t *testing.T) { prefills(t, tinyShape, []backend.DType{backend.Affine4}, []int{64}) })
	t.Run("host", func(t *testing.T) {
		config := small(true)
		config.MaxPositions = 4096
		hostSteps(t, synthetic.RandomSource(config, backend.Affine4, 1), false, []hostBatch{{1, 1}, {2, 1}}, 2)
	})
	t.Run("first", func(t *testing.T) {
		config := small(true)
		config.MaxPositions = 4096
		firsts(t, synthetic.RandomSource(config, backend.Affine4, 1), Options{Preload: true})
	})
	t.Run("draft", func(t *testing.T) {
		config := *backendtest.Source(t, goldenDir, "qwen3-5-drafts").Config()
		config.IntermediateSize = 128
		drafted(t, &config, 40, 1)
	})
	t.Run("group exchange", func(t *testing.T) { exchanges(t, openGroup(t, false), 1, 64, 2) })
}
