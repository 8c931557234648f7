package launch

import (
	"fmt"
	"math"
	"math/rand/v2"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/cuda/driver"
)

func init() {
	registerSelfTest("gated DeltaNet", checkDelta)
	registerSelfTest("few rows of gated DeltaNet", checkDeltaFew)
}

// deltaSelfCases have lengths that fill lines and blocks, and others.
var deltaSelfCases = []backend.StateShape{
	{KeyHeads: 2, ValueHeads: 4, KeyDim: 24, ValueDim: 40, Conv: 4},
	{KeyHeads: 2, ValueHeads: 4, KeyDim: 48, ValueDim: 17, Conv: 2, Tiled: true},
	{KeyHeads: 1, ValueHeads: 3, KeyDim: 128, ValueDim: 128, Conv: 4},
}

func checkDelta(d *Device) error {
	r := rand.New(rand.NewPCG(11, 2))
	defer func() { d.Tuning = Tuning{} }()
	defer d.freeDelta()
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
	rows                     int
}

// newDeltaBed makes a layer over rows of a sequence, of which log may be taken back.
func newDeltaBed(d *Device, r *rand.Rand, c backend.StateShape, rows, log int) *deltaBed {
	b := &deltaBed{bed: bed{d: d}, width: c.Channels() + c.Values(), thin: 2 * c.ValueHeads, rows: rows}
	b.DeltaShape = DeltaShape{c}
	other := backend.StateShape{KeyHeads: 1, ValueHeads: 1, KeyDim: 3, ValueDim: 5, Conv: 3}
	b.layout = backend.Layout{Layers: []backend.LayerStore{{Kind: backend.StoreState, State: other}, {Kind: backend.StoreState, State: c}}, DType: backend.KVF32, Slots: 64, LogRows: log}
	b.wide, b.narrow = vectors.Normals(r, rows*b.width), vectors.Normals(r, rows*b.thin)
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
		n += fixed + b.layout.LogRows*byLog
	}
	return b.empty(4 * n)
}

// deltaForward is what a forward does with a sequence: rows behind base, whose states cover
// folded indices.
type deltaForward struct {
	from, to           driver.Ptr
	folded, base, rows int
}

// run is a forward of sequences with the bed's inputs; it returns what their rows give, in
// turn. Of the launch the room is as large as it need be, or larger.
func (b *deltaBed) run(of ...deltaForward) ([]float32, error) {
	l, spans := b.layout, len(of)+1
	v := &StepValues{}
	var wide, narrow []float32
	for _, s := range of {
		on := &withStates{
			placed{storageOn(backend.KeysLayout(1, 1, 2, backend.KVF32, 1), []driver.Ptr{b.empty(64 * 16)}).(placed).Table},
			StateStep{From: s.from, To: s.to, Settle: l.Settle(s.base, s.rows), Folded: func(int) int { return s.folded }},
		}
		v.Spans = append(v.Spans, backend.Span{Storage: logged{on, l}, First: v.Rows, Base: s.base, Rows: s.rows})
		v.Rows += s.rows
		wide = append(wide, b.wide[s.base*b.width:(s.base+s.rows)*b.width]...)
		narrow = append(narrow, b.narrow[s.base*b.thin:(s.base+s.rows)*b.thin]...)
	}
	rows, bucket := v.Rows, RowBucket(v.Rows)
	step := b.step(v, StepShape{Bucket: bucket, Spans: spans, Pages: 2 * spans, States: 2})
	x := b.Delta
	pw, pn := b.floats(append(wide, nanRows(bucket-rows, b.width)...)), b.floats(append(narrow, nanRows(bucket-rows, b.thin)...))
	for _, at := range []*DeltaRaw{&x.Q, &x.K, &x.V, &x.Z} {
		at.X = pw
	}
	x.B.X, x.A.X = pn, pn
	x.Room = b.empty(4 * bucket * x.DeltaShape.Room())
	out, out16 := b.empty(4*bucket*x.Values()), b.empty(2*bucket*x.Values())
	if _, err := b.d.PrepareDelta(&x, bucket); err != nil {
		return nil, err
	}
	b.d.Delta(out, out16, &x, step, bucket, spans)
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
	b := newDeltaBed(d, r, c, 33, 4)
	defer b.free()
	all, err := b.run(deltaForward{to: b.states(), rows: b.rows})
	if err != nil {
		return err
	}
	if err := vectors.Near(all, b.want(), 1e-5); err != nil {
		return err
	}
	one, other := b.states(), b.states()
	err = b.equal(all,
		[]deltaForward{{0, one, 0, 0, 2}}, []deltaForward{{one, one, 0, 1, 3}}, // of two rows one is kept
		[]deltaForward{{one, one, 1, 4, 1}}, []deltaForward{{one, one, 4, 4, 1}}, // nothing is kept
		[]deltaForward{{one, other, 4, 5, 1}}, // a fork's first step
		[]deltaForward{{other, one, 5, 6, 7}}, // more than the log holds
		[]deltaForward{{one, one, 9, 11, 3}}, []deltaForward{{one, one, 11, 12, 2}},
	)
	if err != nil || d.brief || b.lines() != deltaMostDim || b.columns()%(2*deltaColumns) != 0 {
		return err
	}
	defer func() { d.Tuning.deltaWide = ifFaster }()
	d.Tuning.deltaWide = never
	if all, err = b.run(deltaForward{to: b.states(), rows: b.rows}); err != nil {
		return err
	}
	d.Tuning.deltaWide = always
	wide := b.states()
	return b.equal(all,
		[]deltaForward{{0, wide, 0, 0, 3}}, []deltaForward{{wide, other, 0, 2, 9}}, []deltaForward{{other, other, 7, 10, 2}}, []deltaForward{{other, wide, 10, 11, 22}},
	)
}

// equal compares what forwards give with what all rows give in one.
func (b *deltaBed) equal(all []float32, forwards ...[]deltaForward) error {
	for i, of := range forwards {
		got, err := b.run(of...)
		for _, s := range of {
			n := b.Values()
			if err == nil {
				err = vectors.Equal(got[:s.rows*n], all[s.base*n:(s.base+s.rows)*n])
				got = got[s.rows*n:]
			}
			if err != nil {
				return fmt.Errorf("forward %d, %d rows behind %d: %w", i, s.rows, s.base, err)
			}
		}
	}
	return nil
}

// checkDeltaFew compares few rows, which go through kernels/delta_few_hopper.cu, with those of
// delta.cu, bit for bit: of one sequence and of two, with all the rows that there may be, more
// logged ones than are folded in at a time, and logs in which new rows come to the place of old
// ones. It does nothing on devices that it is not for.
func checkDeltaFew(d *Device) error {
	if !d.takesTiled() {
		return nil
	}
	r := rand.New(rand.NewPCG(11, 3))
	defer func(t Tuning) { d.Tuning = t }(d.Tuning)
	d.Tuning.deltaFew = deltaFewRows
	defer d.freeDelta()
	for i, c := range []backend.StateShape{
		{KeyHeads: 1, ValueHeads: 2, KeyDim: 128, ValueDim: 128, Conv: 4},
		{KeyHeads: 2, ValueHeads: 4, KeyDim: 128, ValueDim: 128, Conv: 4, Tiled: true},
		{KeyHeads: 2, ValueHeads: 2, KeyDim: 128, ValueDim: 128, Conv: 4},
	} {
		if d.brief && i > 1 {
			break
		}
		b := newDeltaBed(d, r, c, 60, 20)
		all, err := b.run(deltaForward{to: b.states(), rows: b.rows})
		if err == nil {
			one, two, three, fork := b.states(), b.states(), b.states(), b.states()
			err = b.equal(all,
				[]deltaForward{{0, one, 0, 0, 2}, {0, two, 0, 0, 20}},
				[]deltaForward{{one, one, 0, 1, 1}, {two, fork, 0, 18, 1}}, // 18 are folded in, of two rows one
				[]deltaForward{{one, one, 1, 2, 12}, {fork, fork, 18, 19, 20}},
				[]deltaForward{{fork, fork, 19, 39, 1}, {one, one, 2, 13, 17}},
				[]deltaForward{{one, one, 13, 28, 32}}, // more than the log holds
				[]deltaForward{{one, one, 40, 59, 1}},
				[]deltaForward{{0, three, 0, 0, 20}},
				[]deltaForward{{three, three, 0, 18, 20}}, // rows come to the place of the last that are folded in
			)
		}
		if b.free(); err != nil {
			return fmt.Errorf("%+v: %w", c, err)
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
	for row := range b.rows {
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
