// Package measure is for tests only: it measures what a GPU does, for the benchmarks of
// the CUDA backend and of its launchers, and makes the noise that they run on.
package measure

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"windrow/cuda/driver"
)

// GPU is what a Meter needs of a device, whose context its owner holds.
type GPU struct {
	Context *driver.Context
	Stream  *driver.Stream
	Take    func() error // the first error of what was enqueued, which it clears
}

// Meter measures for a benchmark, or, in a test, makes sure that a benchmark's
// body runs: there each measurement is one round, and its figures mean nothing.
// Its benchmarks are of one device, which every part holds.
type Meter[D any] struct {
	testing.TB
	D      D // the device, as its package knows it
	gpu    GPU
	looped *bool // of a test, within a loop
}

// New measures a device.
func New[D any](t testing.TB, d D, g GPU) Meter[D] { return Meter[D]{t, d, g, new(bool)} }

// Run measures a part: a sub-benchmark, or a subtest. benchstat reads parts of
// names of the form key=value.
func (m Meter[D]) Run(key, value string, f func(m Meter[D])) {
	name := key + "=" + strings.ReplaceAll(value, " ", "")
	part := func(t testing.TB) {
		m.gpu.Context.Enter()
		defer m.gpu.Context.Leave()
		f(New(t, m.D, m.gpu))
	}
	switch t := m.TB.(type) {
	case *testing.B:
		t.Run(name, func(b *testing.B) { part(b) })
	case *testing.T:
		t.Run(name, func(t *testing.T) { part(t) })
	}
}

// Loop is [testing.B.Loop]: in a test it is true once.
func (m Meter[D]) Loop() bool {
	if b, ok := m.TB.(*testing.B); ok {
		return b.Loop()
	}
	*m.looped = !*m.looped
	return *m.looped
}

func (m Meter[D]) Check(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

// Alloc is memory that is freed at the end of the benchmark or its part.
func (m Meter[D]) Alloc(n int) driver.Ptr {
	m.Helper()
	p, err := m.gpu.Context.Alloc(n)
	m.Check(err)
	m.Cleanup(func() {
		if err := m.gpu.Context.Free(p); err != nil {
			m.Error(err)
		}
	})
	return p
}

// Filled is n bytes of memory that repeat data.
func (m Meter[D]) Filled(n int, data []byte) driver.Ptr {
	m.Helper()
	p := m.Alloc(n)
	m.Fill(p, n, data)
	return p
}

// Fill repeats data in n bytes at p.
func (m Meter[D]) Fill(p driver.Ptr, n int, data []byte) {
	m.Helper()
	data = data[:min(n, len(data))]
	m.Check(m.gpu.Context.Upload(p, data))
	for done := len(data); done < n; done *= 2 {
		m.Check(m.gpu.Stream.Copy(p+driver.Ptr(done), p, min(done, n-done)))
	}
	m.Check(m.gpu.Stream.Synchronize())
}

// Rounds measures what run enqueues, n operations each time, by events on the
// device: what the host takes to enqueue and to wait is left out. ns/op becomes
// the median of an operation over the rounds. It is returned in seconds.
func (m Meter[D]) Rounds(n int, run func() error) float64 {
	m.Helper()
	var event [2]*driver.Event
	for i := range event {
		e, err := m.gpu.Context.NewEvent()
		m.Check(err)
		defer e.Close()
		event[i] = e
	}
	var times []time.Duration
	round := func() {
		m.Helper()
		m.Check(errors.Join(event[0].Record(m.gpu.Stream), run(), event[1].Record(m.gpu.Stream), m.gpu.Take(), m.gpu.Stream.Synchronize()))
		took, err := driver.Elapsed(event[0], event[1])
		m.Check(err)
		times = append(times, took)
	}
	round() // kernels are loaded, clocks are up
	times = times[:0]
	for m.Loop() {
		round()
	}
	slices.Sort(times)
	seconds := times[len(times)/2].Seconds() / float64(n)
	m.Report(seconds*1e9, "ns/op")
	return seconds
}

// Replay measures a graph, several of it one behind the other, which are n
// operations in all.
func (m Meter[D]) Replay(g *driver.Graph, several, n int) float64 {
	m.Helper()
	if _, ok := m.TB.(*testing.T); ok {
		several = 1
	}
	return m.Rounds(n, func() error {
		for range several {
			if err := g.Launch(m.gpu.Stream); err != nil {
				return err
			}
		}
		return nil
	})
}

// Report is [testing.B.ReportMetric]; in a test the figure has to be a number.
func (m Meter[D]) Report(x float64, unit string) {
	m.Helper()
	if b, ok := m.TB.(*testing.B); ok {
		b.ReportMetric(x, unit)
	} else if math.IsNaN(x) || x < 0 {
		m.Errorf("%g %s", x, unit)
	}
}

// peakBytes a second are those of an H100's memory, which shares are of.
const peakBytes = 3.35e12

// Moved reports the rate at which bytes were moved in seconds, also as a share
// of an H100's: an emulated device may need no time.
func (m Meter[D]) Moved(bytes int, seconds float64) {
	m.Helper()
	rate := float64(bytes) / max(seconds, 1e-12)
	m.Report(rate/1e9, "GB/s")
	m.Report(100*rate/peakBytes, "%of3.35TB/s")
}

// Multiplied reports the rate of products.
func (m Meter[D]) Multiplied(flop, seconds float64) {
	m.Helper()
	m.Report(flop/max(seconds, 1e-12)/1e12, "TFLOP/s")
}
