package launch

import (
	"fmt"
	"math"
	"math/rand/v2"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/cuda/driver"
)

func init() { registerSelfTest("gated DeltaNet", checkDelta) }

// deltaSelfCases have lengths that fill lines and blocks, and others.
var deltaSelfCases = []backend.StateShape{
	{KeyHeads: 2, ValueHeads: 4, KeyDim: 24, ValueDim: 40, Conv: 4},
	{KeyHeads: 2, ValueHeads: 4, KeyDim: 48, ValueDim: 17, Conv: 2, Tiled: true},
	{KeyHeads: 1, ValueHeads: 3, KeyDim: 128, ValueDim: 128, Conv: 4},
}

func checkDelta(d *Device) error {
	r := rand.New(rand.NewPCG(11, 2))
	defer func() { d.Tuning = Tuning{} }()
	for i, c := range deltaSelfCases {
		for _, run := range []int{0, 5, 16} {
			if d.Tuning.deltaRun = run; d.brief && run > 0 && i < 2 {
				continue
			}
			if err := checkDeltaCase(d, r, c); err != nil {
				return fmt.Errorf("%+v, by %d rows: %w", c, run, err)
			}
		}
	}
	return nil
}

// withStates is storage without keys, whose states a test places.
type withStates struct {
	placed
	step StateStep
}

func (s *withStates) StateStep() StateStep { return s.step }

// deltaBed is a layer with random weights, the second of two, over projections of a
// sequence: queries, keys, values and z in one buffer, b and a in another.
type deltaBed struct {
	bed
	Delta
	layout                   backend.Layout
	wide, narrow             []float32
	width, thin              int
	taps, decay, time, norms []float32
}

const deltaLog, deltaRows = 4, 33

func newDeltaBed(d *Device, r *rand.Rand, c backend.StateShape) *deltaBed {
	b := &deltaBed{bed: bed{d: d}, width: c.Channels() + c.Values(), thin: 2 * c.ValueHeads}
	b.DeltaShape = DeltaShape{c}
	other := backend.StateShape{KeyHeads: 1, ValueHeads: 1, KeyDim: 3, ValueDim: 5, Conv: 3}
	b.layout = backend.Layout{Layers: []backend.LayerStore{{Kind: backend.StoreState, State: other}, {Kind: backend.StoreState, State: c}}, DType: backend.KVF32, Slots: 64, LogRows: deltaLog}
	b.wide, b.narrow = vectors.Normals(r, deltaRows*b.width), vectors.Normals(r, deltaRows*b.thin)
	b.taps, b.decay, b.time, b.norms = vectors.Normals(r, c.Channels()*c.Conv), vectors.Normals(r, c.ValueHeads), vectors.Normals(r, c.ValueHeads), vectors.Normals(r, c.ValueDim)
	b.Taps, b.LogDecay, b.TimeStep, b.Norm = b.floats(b.taps), b.floats(b.decay), b.floats(b.time), b.floats(b.norms)
	n := c.Group()
	b.Q, b.K = DeltaRaw{Width: b.width, Stride: c.KeyDim}, DeltaRaw{Width: b.width, First: c.Keys(), Stride: c.KeyDim}
	b.V, b.Z = DeltaRaw{Width: b.width, First: 2 * c.Keys(), Stride: n * c.ValueDim}, DeltaRaw{Width: b.width, First: c.Channels(), Stride: n * c.ValueDim}
	b.B, b.A = DeltaRaw{Width: b.thin, Stride: n}, DeltaRaw{Width: b.thin, First: c.ValueHeads, Stride: n}
	b.Eps, b.Layer = 1e-6, 1
	b.Fixed, b.ByLog = DeltaShape{other}.Size()
	return b
}

// states reserves those of a sequence, all NaN.
func (b *deltaBed) states() driver.Ptr {
	n := 0
	for _, s := range b.layout.States() {
		fixed, byLog := DeltaShape{s}.Size()
		n += fixed + deltaLog*byLog
	}
	return b.empty(4 * n)
}

// run is a forward of rows behind base of a sequence whose states cover folded indices.
func (b *deltaBed) run(from, to driver.Ptr, folded, base, rows int) ([]float32, error) {
	l := b.layout
	s := &withStates{placed{storageOn(backend.KeysLayout(1, 1, 2, backend.KVF32, 1), []driver.Ptr{b.empty(64 * 16)}).(placed).Table}, StateStep{From: from, To: to, Settle: l.Settle(base, rows), Folded: func(int) int { return folded }}}
	bucket := RowBucket(rows)
	v := &StepValues{Rows: rows, Spans: []backend.Span{{Storage: logged{s, l}, Base: base, Rows: rows}}}
	step := b.step(v, StepShape{Bucket: bucket, Spans: 2, Pages: 2, States: 2})
	x := b.Delta
	wide := append(append([]float32(nil), b.wide[base*b.width:(base+rows)*b.width]...), nanRows(bucket-rows, b.width)...)
	narrow := append(append([]float32(nil), b.narrow[base*b.thin:(base+rows)*b.thin]...), nanRows(bucket-rows, b.thin)...)
	pw, pn := b.floats(wide), b.floats(narrow)
	for _, at := range []*DeltaRaw{&x.Q, &x.K, &x.V, &x.Z} {
		at.X = pw
	}
	x.B.X, x.A.X = pn, pn
	x.Room = b.empty(4 * bucket * x.DeltaShape.Room())
	out, out16 := b.empty(4*bucket*x.Values()), b.empty(2*bucket*x.Values())
	b.d.Delta(out, out16, &x, step, bucket, 2)
	got, n := b.readFloats(out, bucket*x.Values()), rows*x.Values()
	if err := vectors.Equal(got[n:], nanRows(bucket-rows, x.Values())); err != nil {
		return nil, fmt.Errorf("rows past the last: %w", err)
	}
	if err := vectors.Equal(b.readHalves(out16, n), rounded(got[:n])); err != nil {
		return nil, fmt.Errorf("as bf16: %w", err)
	}
	return got[:n], nil
}

// logged is storage with the layout of its states.
type logged struct {
	*withStates
	layout backend.Layout
}

func (s logged) Layout() backend.Layout { return s.layout }

// checkDeltaCase compares all rows in one forward with float64, and then other cuts with
// those: in place, beside what there is, with rows that are folded in, and others that
// were not committed.
func checkDeltaCase(d *Device, r *rand.Rand, c backend.StateShape) error {
	b := newDeltaBed(d, r, c)
	defer b.free()
	all, err := b.run(0, b.states(), 0, 0, deltaRows)
	if err != nil {
		return err
	}
	if err := vectors.Near(all, b.want(), 1e-5); err != nil {
		return err
	}
	one, other := b.states(), b.states()
	for _, f := range []struct {
		from, to           driver.Ptr
		folded, base, rows int
	}{
		{0, one, 0, 0, 2}, {one, one, 0, 1, 3}, // of two rows one is kept
		{one, one, 1, 4, 1}, {one, one, 4, 4, 1}, // nothing is kept
		{one, other, 4, 5, 1}, // a fork's first step
		{other, one, 5, 6, 7}, // more than the log holds
		{one, one, 9, 11, 3}, {one, one, 11, 12, 2},
	} {
		got, err := b.run(f.from, f.to, f.folded, f.base, f.rows)
		if err == nil {
			err = vectors.Equal(got, all[f.base*c.Values():(f.base+f.rows)*c.Values()])
		}
		if err != nil {
			return fmt.Errorf("%d rows behind %d: %w", f.rows, f.base, err)
		}
	}
	return nil
}

// want is the layer over all rows in float64.
func (b *deltaBed) want() (out []float64) {
	c := b.StateShape
	n, dk, dv := c.Group(), c.KeyDim, c.ValueDim
	mixed := func(row, channel int) float64 {
		sum := 0.0
		for t := range c.Conv {
			if from := row - c.Conv + 1 + t; from >= 0 {
				sum += float64(b.taps[channel*c.Conv+t]) * float64(b.wide[from*b.width+channel])
			}
		}
		return sum / (1 + math.Exp(-sum))
	}
	unit := func(row, channel int, scale float64) []float64 {
		x, sum := make([]float64, dk), backend.DeltaEps
		for i := range x {
			x[i] = mixed(row, channel+i)
			sum += x[i] * x[i]
		}
		for i := range x {
			x[i] *= scale / math.Sqrt(sum)
		}
		return x
	}
	states := make([]float64, c.Size())
	for row := range deltaRows {
		for j := range c.ValueHeads {
			g := c.KeyHead(j)
			q, k := unit(row, g*dk, 1/math.Sqrt(float64(dk))), unit(row, c.Keys()+g*dk, 1)
			beta := 1 / (1 + math.Exp(-float64(b.narrow[row*b.thin+j])))
			alpha := math.Exp(-math.Exp(float64(b.decay[j])) * math.Log1p(math.Exp(float64(b.narrow[row*b.thin+n*c.KeyHeads+j])+float64(b.time[j]))))
			o, sum := make([]float64, dv), 0.0
			for e := range dv {
				s := states[(j*dv+e)*dk:][:dk]
				delta := mixed(row, 2*c.Keys()+j*dv+e)
				for i := range s {
					s[i] *= alpha
					delta -= s[i] * k[i]
				}
				for i := range s {
					s[i] += k[i] * delta * beta
					o[e] += s[i] * q[i]
				}
				sum += o[e] * o[e]
			}
			for e := range o {
				z := float64(b.wide[row*b.width+c.Channels()+j*dv+e])
				out = append(out, o[e]/math.Sqrt(sum/float64(dv)+1e-6)*float64(b.norms[e])*z/(1+math.Exp(-z)))
			}
		}
	}
	return out
}
