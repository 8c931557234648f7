package cuda

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"windrow/backend"
	"windrow/cuda/driver"
	"windrow/synthetic"
)

// meter measures for a benchmark, or, in a test, makes sure that a benchmark's
// body runs: there each measurement is one round, and its figures mean nothing.
// Its benchmarks are of one device, which every part holds.
type meter struct {
	testing.TB
	d      *device
	looped *bool // of a test, within a loop
}

func newMeter(t testing.TB, d *device) meter { return meter{t, d, new(bool)} }

// needsGPU skips a benchmark where there is no GPU.
func needsGPU(b *testing.B) {
	b.Helper()
	if !onDevice {
		b.Skip("measures a GPU: set WINDROW_CUDA_DEVICE to its number")
	}
}

// benchDevice is the GPU that a benchmark measures.
func benchDevice(b *testing.B) meter {
	b.Helper()
	needsGPU(b)
	return newMeter(b, testDevice(b))
}

// run measures a part: a sub-benchmark, or a subtest. benchstat reads parts of
// names of the form key=value.
func (m meter) run(key, value string, f func(m meter)) {
	name := key + "=" + strings.ReplaceAll(value, " ", "")
	part := func(t testing.TB) {
		m.d.ctx.Enter()
		defer m.d.ctx.Leave()
		f(newMeter(t, m.d))
	}
	switch t := m.TB.(type) {
	case *testing.B:
		t.Run(name, func(b *testing.B) { part(b) })
	case *testing.T:
		t.Run(name, func(t *testing.T) { part(t) })
	}
}

// loop is [testing.B.Loop]: in a test it is true once.
func (m meter) loop() bool {
	if b, ok := m.TB.(*testing.B); ok {
		return b.Loop()
	}
	*m.looped = !*m.looped
	return *m.looped
}

func (m meter) check(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

// alloc is memory that is freed at the end of the benchmark or its part.
func (m meter) alloc(n int) driver.Ptr {
	m.Helper()
	p, err := m.d.ctx.Alloc(n)
	m.check(err)
	m.Cleanup(func() {
		if err := m.d.ctx.Free(p); err != nil {
			m.Error(err)
		}
	})
	return p
}

// filled is n bytes of memory that repeat data.
func (m meter) filled(n int, data []byte) driver.Ptr {
	m.Helper()
	p := m.alloc(n)
	m.fill(p, n, data)
	return p
}

// fill repeats data in n bytes at p.
func (m meter) fill(p driver.Ptr, n int, data []byte) {
	m.Helper()
	data = data[:min(n, len(data))]
	m.check(m.d.ctx.Upload(p, data))
	for done := len(data); done < n; done *= 2 {
		m.check(m.d.stream.Copy(p+driver.Ptr(done), p, min(done, n-done)))
	}
	m.check(m.d.stream.Synchronize())
}

// rounds measures what run enqueues, n operations each time, by events on the
// device: what the host takes to enqueue and to wait is left out. ns/op becomes
// the median of an operation over the rounds. It is returned in seconds.
func (m meter) rounds(n int, run func() error) float64 {
	m.Helper()
	d := m.d
	var event [2]*driver.Event
	for i := range event {
		e, err := d.ctx.NewEvent()
		m.check(err)
		defer e.Close()
		event[i] = e
	}
	var times []time.Duration
	round := func() {
		m.Helper()
		m.check(errors.Join(event[0].Record(d.stream), run(), event[1].Record(d.stream), d.take(), d.stream.Synchronize()))
		took, err := driver.Elapsed(event[0], event[1])
		m.check(err)
		times = append(times, took)
	}
	round() // kernels are loaded, clocks are up
	times = times[:0]
	for m.loop() {
		round()
	}
	slices.Sort(times)
	seconds := times[len(times)/2].Seconds() / float64(n)
	m.report(seconds*1e9, "ns/op")
	return seconds
}

// graph measures n launches that are captured into a graph: a round is two of
// it, one behind the other, so that they overlap as in a step's graph.
func (m meter) graph(n int, launch func(i int)) float64 {
	m.Helper()
	d := m.d
	launches := func() {
		for i := range n {
			launch(i)
		}
	}
	d.dry = true // modules are loaded outside of the capture
	launches()
	d.dry, d.overlap = false, false
	m.check(errors.Join(d.take(), d.stream.BeginCapture()))
	launches()
	g, err := d.stream.EndCapture()
	m.check(errors.Join(err, d.take()))
	defer g.Close()
	return m.replay(g, 2, 2*n)
}

// replay measures a graph, several of it one behind the other, which are n
// operations in all.
func (m meter) replay(g *driver.Graph, several, n int) float64 {
	m.Helper()
	if _, ok := m.TB.(*testing.T); ok {
		several = 1
	}
	return m.rounds(n, func() error {
		for range several {
			if err := g.Launch(m.d.stream); err != nil {
				return err
			}
		}
		return nil
	})
}

// report is [testing.B.ReportMetric]; in a test the figure has to be a number.
func (m meter) report(x float64, unit string) {
	m.Helper()
	if b, ok := m.TB.(*testing.B); ok {
		b.ReportMetric(x, unit)
	} else if math.IsNaN(x) || x < 0 {
		m.Errorf("%g %s", x, unit)
	}
}

// peakBytes a second are those of an H100's memory, which shares are of.
const peakBytes = 3.35e12

// moved reports the rate at which bytes were moved in seconds, also as a share
// of an H100's: an emulated device may need no time.
func (m meter) moved(bytes int, seconds float64) {
	m.Helper()
	rate := float64(bytes) / max(seconds, 1e-12)
	m.report(rate/1e9, "GB/s")
	m.report(100*rate/peakBytes, "%of3.35TB/s")
}

// multiplied reports the rate of products.
func (m meter) multiplied(flop, seconds float64) {
	m.Helper()
	m.report(flop/max(seconds, 1e-12)/1e12, "TFLOP/s")
}

// weightType is a type of weights; group is 0 but for affine ones.
type weightType struct {
	dt    backend.DType
	group int
}

// benchTypes are those that benchmarks of projections measure.
var benchTypes = []weightType{{backend.BF16, 0}, {backend.Affine4, 64}, {backend.Affine8, 64}, {backend.Q4_K, 0}, {backend.Q6_K, 0}, {backend.Q8_0, 0}}

// needsHopper skips what measures kernels for compute capability 9.0 alone.
func (m meter) needsHopper() {
	m.Helper()
	if !m.d.takesTiled() {
		m.Skip("measures kernels for compute capability 9.0, of a driver from CUDA 12.1 on; the emulated device is one with WINDROW_EMULATED_CC=9.0")
	}
}

// BenchmarkCopy measures the yardstick: a copy of 512 MiB within the device,
// bytes read and written both counted.
func BenchmarkCopy(b *testing.B) { benchDevice(b).copies(512 << 20) }

func (m meter) copies(n int) {
	src, dst := m.alloc(n), m.alloc(n)
	m.moved(2*n, m.rounds(1, func() error { return m.d.stream.Copy(dst, src, n) }))
}

// TestBenchmarks runs the bodies of benchmarks at their smallest, on the emulated
// device too, for their launches to be valid and every figure to be made.
func TestBenchmarks(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(m meter)
	}{
		{"copy", func(m meter) { m.copies(1 << 16) }},
		{"projections", func(m meter) { tinyProjections.run(m) }},
		{"tiled", func(m meter) { m.needsHopper(); tinyTiled.run(m) }},
		{"wide", func(m meter) { wideTimes(m, tinyProjectShapes, benchTypes[1:2], []int{48}) }},
		{"packed prefill", func(m meter) { packedPrefill(m, tinyProjectShapes[:2], benchTypes[1:2], []int{48}) }},
		{"gemm", func(m meter) { gemmTimes(m, tinyGEMMShapes, []int{33}) }},
		{"dequantise", func(m meter) { dequantiseTimes(m, 64, 256, benchTypes[1:2]) }},
		{"attention", tinyAttention},
		{"rows", func(m meter) { newSpeed(m, 64).rows() }},
		{"exact projections", func(m meter) { newSpeed(m, 64).projections() }},
		{"exact attention", func(m meter) { newSpeed(m, 64).attention() }},
		{"results", func(m meter) { newSpeed(m, 64).results() }},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(newMeter(t, testDevice(t))) })
	}
	t.Run("step", func(t *testing.T) { steps(t, tinyShape, []backend.DType{backend.Affine4}, []int{16}, 100) })
	t.Run("batch step", func(t *testing.T) { batchSteps(t, tinyShape, true, 2, 10, batchParts[:2]) })
	t.Run("prefill", func(t *testing.T) { prefills(t, tinyShape, []backend.DType{backend.Affine4}, []int{64}) })
	t.Run("host", func(t *testing.T) {
		config := small(true)
		config.MaxPositions = 4096
		hostSteps(t, synthetic.RandomSource(config, backend.Affine4, 1), []int{1}, 2)
	})
	t.Run("group exchange", func(t *testing.T) { exchanges(t, openGroup(t, false), 1, 64, 2) })
}
