package launch

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/cuda/driver"
	"windrow/quant"
)

func init() {
	for _, f := range projectFormats {
		registerSelfTest("experts/"+vectors.Name(f.dt, f.group), func(d *Device) error { return checkExperts(d, f.dt, f.group, false) })
	}
	for dt := backend.F32; dt <= backend.Q6_K; dt++ {
		group := 0
		if dt.Affine() {
			group = 32
		}
		registerSelfTest("exact experts "+dt.String(), func(d *Device) error { return checkExperts(d, dt, group, true) })
	}
}

// expertsBench is a mixture of experts on the device and as numbers.
type expertsBench struct {
	*projectBench
	exact          bool
	experts        int
	width, inner   int
	e              Experts
	router         Router
	gate, up, down [][]float32
	shared         [][]float32 // gate, up, down
	share          []float32
	unused         int // an expert that nobody chooses
}

// expertShape is a mixture in a self-test; shared is the inner width of the expert
// that every row has, or 0.
type expertShape struct{ experts, chosen, width, inner, shared int }

func expertShapes(d *Device, dt backend.DType, group int) []expertShape {
	switch {
	case dt == backend.Q4_K || dt == backend.Q6_K:
		return []expertShape{{5, 2, 512, 256, 256}}
	case group == 0 && !dt.Quantized():
		return []expertShape{{5, 2, 72, 40, 24}, {7, 3, 1100 &^ 7, 200, 0}}
	case d.brief && dt == backend.Affine4 && group == 64: // the second fills rings more than once
		return []expertShape{{5, 2, 384, 128, 128}, {40, 8, 128, 512, 0}, {10, 8, 128, 256, 256}}
	case d.brief:
		return []expertShape{{5, 2, 384, 128, 128}}
	}
	return []expertShape{{5, 2, 384, 128, 128}, {6, 3, 2176, 640, 0}, {40, 8, 128, 512, 0}, {10, 8, 128, 256, 256}}
}

// matrixOf puts a weight on the device in the form that the arithmetic takes.
func (b *expertsBench) matrixOf(dt backend.DType, group, out, in int) (*Weight, []float32) {
	t := b.tensor(dt, group, out, in)
	if b.exact {
		m := &Weight{DType: dt, Out: out, In: in, Group: group, Raw: b.upload(t.Data)}
		if dt.Affine() {
			m.Scales, m.Biases = b.upload(t.Scales), b.upload(t.Biases)
		}
		return m, widened(t)
	}
	m := b.matrix(t)
	m.TensorCoreShape = !dt.Quantized()
	return m, widened(t)
}

// list makes one matrix of each expert. That of an expert which nobody chooses lies
// nowhere.
func (b *expertsBench) list(dt backend.DType, group, out, in int, shared *Linear) (l ExpertList, numbers [][]float32) {
	if shared != nil {
		l.More = 1
	}
	n := b.experts + l.More
	data := make([]byte, 8*3*n)
	for i := range n {
		w, x := b.matrixOf(dt, group, out, in)
		if !b.exact {
			x = asMultiplied(dt, x)
		}
		numbers = append(numbers, x)
		if i == b.unused {
			continue
		}
		if l.Of, l.Count = w, b.experts; i == b.experts {
			shared.Weight = w
		}
		for j, p := range []driver.Ptr{w.Data(), w.Scales, w.Biases} {
			binary.LittleEndian.PutUint64(data[8*(j*n+i):], uint64(p))
		}
	}
	l.Where = b.upload(data)
	return l, numbers
}

func newExpertsBench(d *Device, dt backend.DType, group int, s expertShape, exact bool) *expertsBench {
	b := &expertsBench{projectBench: newProjectBench(d, uint64(dt)<<8|uint64(group)+5), exact: exact, experts: s.experts, width: s.width, inner: s.inner, unused: 1}
	b.e.Chosen = s.chosen
	joined := make([]*Linear, 3)
	if s.shared == s.inner && !exact { // one more of the same shape
		b.e.Shared = make([]Linear, 3)
		joined = []*Linear{&b.e.Shared[0], &b.e.Shared[1], &b.e.Shared[2]}
	}
	b.e.Gate, b.gate = b.list(dt, group, s.inner, s.width, joined[0])
	b.e.Up, b.up = b.list(dt, group, s.inner, s.width, joined[1])
	b.e.Down, b.down = b.list(dt, group, s.width, s.inner, joined[2])
	if b.e.Shared != nil {
		if b.err == nil {
			b.e.Joined = Joins(b.e.Shared, b.e.Gate.Of, b.e.Up.Of, b.e.Down.Of)
		}
		b.shared = [][]float32{b.gate[s.experts], b.up[s.experts], b.down[s.experts]}
	}
	router := b.logits(s.experts, s.width, 1) // so that each chosen expert counts
	router[b.unused*s.width] = -1e6           // rows begin with a positive number
	b.router = Router{Weight: &Weight{DType: backend.F32, Out: s.experts, In: s.width, Raw: b.uploadF32(router)}, Chosen: s.chosen, Renormalise: s.experts != 40}
	b.router.Joined, b.router.Rounded = b.e.Joined, b.e.Gate.Of != nil && b.e.Gate.Of.Fast()
	b.router.Wide = b.e.Wide()
	if s.shared > 0 {
		for _, shape := range [][2]int{{s.shared, s.width}, {s.shared, s.width}, {s.width, s.shared}} {
			if len(b.shared) == 3 {
				break
			}
			w, x := b.matrixOf(dt, group, shape[0], shape[1])
			b.e.Shared, b.shared = append(b.e.Shared, Linear{Weight: w}), append(b.shared, x)
		}
		b.share = b.logits(1, s.width, 1)
		b.router.Share = &Weight{DType: backend.F32, Out: 1, In: s.width, Raw: b.uploadF32(b.share)}
	}
	return b
}

// step uploads the step block of a forward of rows.
func (b *projectBench) step(rows int) driver.Ptr {
	s := StepShape{Bucket: RowBucket(rows), Spans: 1, Pages: 8}
	block := make([]byte, s.Bytes())
	p := b.alloc(len(block))
	v := StepValues{Rows: rows}
	v.Write(block, s, p)
	if b.err == nil {
		b.err = b.d.Context.Upload(p, block)
	}
	return p
}

// run adds what the experts make of rows of x to before. It returns the sums and the
// routing.
func (b *expertsBench) run(x, before []float32, decode bool) (sums, routing []float32) {
	rows := len(x) / b.width
	bucket := RowBucket(rows)
	pad := func(x []float32, width int) []float32 { return append(slices.Clone(x), nans((bucket-rows)*width)...) }
	x32 := b.uploadF32(pad(x, b.width))
	x16, dst := b.alloc(2*bucket*b.width), b.uploadF32(pad(before, b.width))
	to, step := b.alloc(4*bucket*2*b.e.Chosen), b.step(rows)
	if b.err != nil {
		return nil, nil
	}
	b.d.ToBF16(x16, x32, bucket*b.width)
	if _, b.err = b.d.PrepareRoute(&b.router, bucket); b.err != nil {
		return nil, nil
	}
	if _, b.err = b.d.PrepareExperts(&b.e, decode, Rows{Count: bucket}); b.err != nil {
		return nil, nil
	}
	b.d.Route(to, x32, &b.router, Normed{}, step, decode, Rows{Count: bucket})
	b.d.Experts(dst, x32, x16, to, &b.e, step, decode, Rows{Count: bucket})
	return b.downloadF32(rows*b.width, dst), b.downloadF32(rows*2*b.e.Chosen, to)
}

// made is what an expert makes of a row: products in float64, what lies between them
// rounded as the kernels round it.
func (b *expertsBench) made(x, gate, up, down []float32) []float64 {
	inner := len(gate) / b.width
	g, u := product(x, gate, nil, 1, inner, b.width), product(x, up, nil, 1, inner, b.width)
	h := make([]float32, inner)
	for i := range h {
		h[i] = float32(g[i] / (1 + math.Exp(-g[i])) * u[i])
		if !b.exact {
			h[i] = quant.BF16ToF32(quant.F32ToBF16(h[i]))
		}
	}
	return product(h, down, nil, 1, b.width, inner)
}

// want is what run is to give, by its routing.
func (b *expertsBench) want(x, before, routing []float32) []float64 {
	y := make([]float64, len(x))
	k := b.e.Chosen
	for r := range len(x) / b.width {
		row, to := x[r*b.width:(r+1)*b.width], y[r*b.width:(r+1)*b.width]
		for i := range to {
			to[i] = float64(before[r*b.width+i])
		}
		add := func(weight float64, v []float64) {
			for i := range to {
				to[i] += weight * v[i]
			}
		}
		for i := range k {
			e := int(routing[r*2*k+i])
			add(float64(routing[r*2*k+k+i]), b.made(row, b.gate[e], b.up[e], b.down[e]))
		}
		if b.shared != nil {
			sum := product(row, b.share, nil, 1, 1, b.width)[0]
			add(1/(1+math.Exp(-sum)), b.made(row, b.shared[0], b.shared[1], b.shared[2]))
		}
	}
	return y
}

// inputs are rows of bf16 numbers that begin with a positive one.
func (b *expertsBench) inputs(rows int) []float32 {
	x := b.normals(rows * b.width)
	for i, v := range x {
		if i%b.width == 0 {
			v = float32(math.Abs(float64(v))) + 0.5
		}
		x[i] = quant.BF16ToF32(quant.F32ToBF16(v))
	}
	return x
}

// checkExperts compares mixtures with float64, and the bits of rows together with
// theirs alone.
func checkExperts(d *Device, dt backend.DType, group int, exact bool) error {
	defer d.FreeMixtures()
	for _, s := range expertShapes(d, dt, group) {
		b := newExpertsBench(d, dt, group, s, exact)
		sizes := []int{1, 30, 33, 150}
		if d.brief {
			sizes = []int{1, 12, 33, 130}
		}
		if d.brief && s.experts > 8 {
			sizes = []int{12, 33}
		}
		for _, rows := range sizes {
			b.checkRows(rows)
		}
		if err := b.close(); err != nil {
			return fmt.Errorf("%d of %d experts of %d in %d, shared %d: %w", s.chosen, s.experts, s.inner, s.width, s.shared, err)
		}
	}
	return nil
}

func (b *expertsBench) checkRows(rows int) {
	x, before := b.inputs(rows), b.normals(rows*b.width)
	tolerance := 5e-4 // numbers between gate and down that round the other way
	switch {
	case b.exact:
		tolerance = exactTolerance
	case rows > decodeExperts:
		tolerance = 4e-3 // weights are rounded, too
	}
	got, routing := b.run(x, before, false)
	if b.err != nil {
		return
	}
	for r := range rows {
		if slices.Contains(routing[r*2*b.e.Chosen:r*2*b.e.Chosen+b.e.Chosen], float32(b.unused)) {
			b.note(fmt.Errorf("%d rows: row %d has expert %d, which is the least", rows, r, b.unused))
			return
		}
	}
	b.note(nearProduct(fmt.Sprintf("%d rows", rows), got, b.want(x, before, routing), tolerance))
	if b.e.Joined { // the shared expert in launches of its own
		joined := b.shared
		b.e.Joined, b.router.Joined = false, false
		b.shared = slices.Clone(joined)
		for i, w := range joined { // by the projections' kernels
			b.shared[i] = asMultiplied(b.e.Gate.Of.DType, w)
		}
		apart, _ := b.run(x, before, true)
		b.note(nearProduct(fmt.Sprintf("%d rows, the shared expert apart", rows), apart, b.want(x, before, routing), 5e-4))
		b.e.Joined, b.router.Joined, b.shared = true, true, joined
	}
	if rows > decodeExperts && !b.exact { // as a decode pass
		got, routing = b.run(x, before, true)
	}
	same := func(r int, what string) {
		part := func(x []float32) []float32 { return x[r*b.width : (r+1)*b.width] }
		alone, by := b.run(part(x), part(before), true)
		if b.err == nil {
			k := 2 * b.e.Chosen
			if err := cmp.Or(vectors.Equal(alone, part(got)), vectors.Equal(by, routing[r*k:(r+1)*k])); err != nil {
				b.err = fmt.Errorf("row %d of %d alone%s: %w", r, rows, what, err)
			}
		}
	}
	for _, r := range []int{0, rows / 2, rows - 1} {
		same(r, "")
		if b.e.Leave(&b.router); b.router.Left {
			same(r, ", chosen by the experts' launches")
			b.router.Left, b.e.Router = false, nil
		}
	}
}
