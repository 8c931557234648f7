package launch

import (
	"errors"
	"testing"

	"windrow/backend"
	"windrow/cuda/emulator"
	"windrow/cuda/measure"
)

// meter measures a device.
type meter = measure.Meter[*Device]

func newMeter(t testing.TB, d *Device) meter {
	return measure.New(t, d, measure.GPU{Context: d.Context, Stream: d.Stream, Take: d.Take})
}

// needsGPU skips a benchmark where there is no GPU.
func needsGPU(b *testing.B) {
	b.Helper()
	if !emulator.OnGPU {
		b.Skip("measures a GPU: set WINDROW_CUDA_DEVICE to its number")
	}
}

// benchDevice is the GPU that a benchmark measures.
func benchDevice(b *testing.B) meter {
	b.Helper()
	needsGPU(b)
	return newMeter(b, testDevice(b))
}

// graph measures n launches that are captured into a graph: a round is two of
// it, one behind the other, so that they overlap as in a step's graph.
func graph(m meter, n int, launch func(i int)) float64 {
	m.Helper()
	d := m.D
	launches := func() {
		for i := range n {
			launch(i)
		}
	}
	d.dry = true // modules are loaded outside of the capture
	launches()
	d.dry, d.overlap = false, false
	m.Check(errors.Join(d.Take(), d.Stream.BeginCapture()))
	launches()
	g, err := d.Stream.EndCapture()
	m.Check(errors.Join(err, d.Take()))
	defer g.Close()
	return m.Replay(g, 2, 2*n)
}

// weightType is a type of weights; group is 0 but for affine ones.
type weightType struct {
	dt    backend.DType
	group int
}

// benchTypes are those that benchmarks of projections measure.
var benchTypes = []weightType{{backend.BF16, 0}, {backend.Affine4, 64}, {backend.Affine8, 64}, {backend.Q4_K, 0}, {backend.Q6_K, 0}, {backend.Q8_0, 0}}

// needsHopper skips what measures kernels for compute capability 9.0 alone.
func needsHopper(m meter) {
	m.Helper()
	if !m.D.takesTiled() {
		m.Skip("measures kernels for compute capability 9.0, of a driver from CUDA 12.1 on; the emulated device is one with WINDROW_EMULATED_CC=9.0")
	}
}

// BenchmarkCopy measures the yardstick: a copy of 512 MiB within the device,
// bytes read and written both counted.
func BenchmarkCopy(b *testing.B) { copies(benchDevice(b), 512<<20) }

func copies(m meter, n int) {
	src, dst := m.Alloc(n), m.Alloc(n)
	m.Moved(2*n, m.Rounds(1, func() error { return m.D.Stream.Copy(dst, src, n) }))
}

// TestBenchmarks runs the bodies of benchmarks at their smallest, on the emulated
// device too, for their launches to be valid and every figure to be made.
func TestBenchmarks(t *testing.T) {
	if testing.Short() {
		t.Skip("bodies of benchmarks: leave -short out")
	}
	for _, c := range []struct {
		name string
		run  func(m meter)
	}{
		{"copy", func(m meter) { copies(m, 1<<16) }},
		{"projections", func(m meter) { tinyProjections.run(m) }},
		{"tiled", func(m meter) { needsHopper(m); tinyTiled.run(m) }},
		{"wide", func(m meter) { wideTimes(m, tinyProjectShapes, benchTypes[1:2], []int{48}) }},
		{"packed prefill", func(m meter) { packedPrefill(m, tinyProjectShapes[:2], benchTypes[1:2], []int{48}) }},
		{"gemm", func(m meter) { gemmTimes(m, tinyGEMMShapes, []int{33}) }},
		{"dequantise", func(m meter) { dequantiseTimes(m, 64, 256, benchTypes[1:2]) }},
		{"attention", tinyAttention},
		{"delta", func(m meter) { deltaTimes(m, deltaSelfCases[0], 2, []int{1, 20}) }},
		{"experts", func(m meter) {
			mixtureSweep{of: benchTypes[1], rows: []int{1, 9, 140}, layers: 2, noise: 1 << 20}.run(m, expertShape{6, 2, 128, 64, 64})
			mixtureSweep{of: benchTypes[1], rows: []int{40}, prompt: true, forms: groupedTunings(groupedTiles[:1]), layers: 2, noise: 1 << 20}.run(m, expertShape{6, 2, 128, 64, 0})
		}},
		{"rows", func(m meter) { newSpeed(m, 64).rows() }},
		{"exact projections", func(m meter) { newSpeed(m, 64).projections() }},
		{"exact attention", func(m meter) { newSpeed(m, 64).attention() }},
		{"results", func(m meter) { newSpeed(m, 64).results() }},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(newMeter(t, testDevice(t))) })
	}
}
