package launch

import (
	"fmt"
	"testing"

	"windrow/backend"
	"windrow/cuda/driver"
	"windrow/cuda/emulator"
)

// BenchmarkDelta measures gated DeltaNet of a layer, in the shapes of Qwen3.5's 4B and
// 27B: steps that fold one row, and a prompt's pass. Bytes are those of the states that are
// read and written.
func BenchmarkDelta(b *testing.B) {
	m := benchDevice(b)
	for _, c := range []struct {
		name string
		backend.StateShape
	}{
		{"4B", backend.StateShape{KeyHeads: 16, ValueHeads: 32, KeyDim: 128, ValueDim: 128, Conv: 4}},
		{"27B", backend.StateShape{KeyHeads: 16, ValueHeads: 48, KeyDim: 128, ValueDim: 128, Conv: 4}},
	} {
		m.Run("shape", c.name, func(m meter) { deltaTimes(m, c.StateShape, 24, []int{1, 4, 16, 512, 2048}) })
	}
}

// TestDeltaBenchmark runs its body for few rows, which are one launch on compute capability 9.0.
func TestDeltaBenchmark(t *testing.T) {
	if emulator.OnGPU {
		t.Skip("BenchmarkDelta runs there")
	}
	t.Setenv("WINDROW_EMULATED_CC", "9.0")
	d := openDevice(t, driver.Options{Library: emulator.Library(t, false, "delta_few_hopper")}, 0)
	deltaTimes(newMeter(t, d), backend.StateShape{KeyHeads: 1, ValueHeads: 2, KeyDim: 128, ValueDim: 128, Conv: 4}, 2, []int{1, 4})
}

func deltaTimes(m meter, c backend.StateShape, layers int, rows []int) {
	m.Cleanup(m.D.freeDelta)
	const log, base = 16, 100
	shape := DeltaShape{c}
	fixed, byLog := shape.Size()
	l := backend.Layout{DType: backend.KVF32, Slots: base + rows[len(rows)-1], LogRows: log}
	for range layers {
		l.Layers = append(l.Layers, backend.LayerStore{Kind: backend.StoreState, State: c})
	}
	one := m.Filled(4*layers*(fixed+log*byLog), make([]byte, 4096))
	other := m.Filled(4*layers*(fixed+log*byLog), make([]byte, 4096))
	weights := m.Filled(4*c.Channels()*c.Conv, make([]byte, 4096))
	for _, n := range rows {
		bucket := RowBucket(n)
		wide, thin := c.Channels()+c.Values(), 2*c.ValueHeads
		x := Delta{DeltaShape: shape, Taps: weights, LogDecay: weights, TimeStep: weights, Norm: weights, Eps: 1e-6, Room: m.Alloc(4 * bucket * shape.Room())}
		in, gates := m.Filled(4*bucket*wide, make([]byte, 4096)), m.Filled(4*bucket*thin, make([]byte, 4096))
		g := c.Group()
		x.Q, x.K = DeltaRaw{in, wide, 0, c.KeyDim}, DeltaRaw{in, wide, c.Keys(), c.KeyDim}
		x.V, x.Z = DeltaRaw{in, wide, 2 * c.Keys(), g * c.ValueDim}, DeltaRaw{in, wide, c.Channels(), g * c.ValueDim}
		x.B, x.A = DeltaRaw{gates, thin, 0, g}, DeltaRaw{gates, thin, c.ValueHeads, g}
		s := &withStates{step: StateStep{From: one, To: one, Settle: l.Settle(base, n), Folded: func(int) int { return base - 1 }}}
		s.placed = storageOn(backend.KeysLayout(1, 1, 2, backend.KVF32, l.Slots), pagesFor(m, l.Slots)).(placed)
		if s.step.Settle > base {
			s.step.To = other
		}
		v := &StepValues{Rows: n, Spans: []backend.Span{{Storage: logged{s, l}, Base: base, Rows: n}}}
		block := make([]byte, StepShape{Bucket: bucket, Spans: 1, Pages: Ceil(l.Slots, PageSlots), States: layers}.Bytes())
		step := m.Alloc(len(block))
		v.Write(block, StepShape{Bucket: bucket, Spans: 1, Pages: Ceil(l.Slots, PageSlots), States: layers}, step)
		m.Check(m.D.Context.Upload(step, block))
		out := m.Alloc(2 * bucket * c.Values())
		_, err := m.D.PrepareDelta(&x, bucket)
		m.Check(err)
		m.Run("rows", fmt.Sprint(n), func(m meter) {
			measured := func(part string, run func(d *Device, i int)) {
				m.Run("of", part, func(m meter) {
					m.Moved(8*c.Size(), graph(m, layers, func(i int) { run(m.D, i) }))
				})
			}
			over := func(i int) deltaStep {
				y := x
				y.Layer, y.Fixed, y.ByLog = i, i*fixed, i*byLog
				return y.over(0, out, step, bucket, 1)
			}
			measured("rows", func(d *Device, i int) { d.deltaRows(over(i)) })
			measured("columns", func(d *Device, i int) { d.deltaColumns(over(i)) })
			measured("norm", func(d *Device, i int) { d.deltaNorm(over(i)) })
			measured("all", func(d *Device, i int) {
				y := x
				y.Layer, y.Fixed, y.ByLog = i, i*fixed, i*byLog
				d.Delta(0, out, &y, step, bucket, 1)
			})
		})
	}
}

// pagesFor are pages of the least keys, which nobody reads.
func pagesFor(m meter, slots int) (list []driver.Ptr) {
	p := m.Alloc(PageSlots * 16)
	for range Ceil(slots, PageSlots) {
		list = append(list, p)
	}
	return list
}
