package metal

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/quant"
)

func init() {
	for _, f := range projectFormats {
		name := vectors.Name(f.dtype, f.group)
		for _, x := range []elem{elemBF16, elemF32} {
			registerSelfTest("project/"+name+"/"+x.name(), func(d *device) error { return checkProject(d, f, x) })
			registerSelfTest("project/"+name+"/"+x.name()+"/rows", func(d *device) error { return checkRowBits(d, f, x) })
			registerSelfTest("project/"+name+"/"+x.name()+"/matvec", func(d *device) error { return checkMatvec(d, f, x) })
		}
	}
}

// projectFormat is a format, and numbers of inputs: those that end within a
// strip or a piece as far as it allows, the last of more strips than there are
// splits, and more than a simdgroup's 32 pieces.
type projectFormat struct {
	dtype  backend.DType
	group  int
	in     []int
	longIn int
}

var projectFormats = []projectFormat{
	{backend.F32, 0, []int{5, 33, 330, 264}, 536}, {backend.F16, 0, []int{5, 33, 330, 264}, 536}, {backend.BF16, 0, []int{5, 33, 330, 264}, 536},
	{backend.Affine4, 32, []int{32, 544}, 1056}, {backend.Affine4, 64, []int{64, 576}, 1088}, {backend.Affine4, 128, []int{128, 640}, 1152},
	{backend.Affine8, 32, []int{32, 288}, 544}, {backend.Affine8, 64, []int{64, 320}, 576}, {backend.Affine8, 128, []int{128, 384}, 640},
	{backend.Q8_0, 0, []int{32, 288}, 544}, {backend.Q4_0, 0, []int{32, 544}, 1056},
	{backend.Q4_K, 0, []int{256, 768}, 1280}, {backend.Q6_K, 0, []int{256, 768}, 1280},
}

// projectRows are around the tiles of 8, 16 and 32 rows; 33 and 70 are prefill.
var projectRows = []int{1, 2, 7, 8, 16, 31, 32, 33, 70}

// projectTolerance is that of sums in f32 over up to 1280 products, whose
// operands are exact: bf16 and f32 rows times weights as quant.Row has them.
const projectTolerance = 3e-6

// projectCase is rows of x times weights on the device, and their products in
// float64.
type projectCase struct {
	*bed
	r    *rand.Rand
	f    projectFormat
	in   int
	x    view
	xs   []float32 // as the device has them
	rows int
}

func newProjectCase(b *bed, r *rand.Rand, f projectFormat, x elem, in, rows int) *projectCase {
	c := &projectCase{bed: b, r: r, f: f, in: in, rows: rows}
	values := vectors.Normals(r, rows*in)
	c.x, c.xs = b.values(values, x), rounded(values, x)
	return c
}

// weight is a random weight with that bias or none, and its product with x.
func (c *projectCase) weight(out int, bias []float32) (linear, []float64) {
	t := vectors.Tensor(c.r, c.f.dtype, out, c.in, c.f.group)
	l := linear{weight: c.bed.weight(t)}
	if bias != nil {
		l.bias = c.floats(bias)
	} else {
		bias = make([]float32, out)
	}
	w, y := widened(t), make([]float64, c.rows*out)
	for i := range c.rows {
		for o := range out {
			sum := float64(bias[o])
			for k, v := range c.xs[i*c.in : (i+1)*c.in] {
				sum += float64(v) * float64(w[o*c.in+k])
			}
			y[i*out+o] = sum
		}
	}
	return l, y
}

// multiply takes windows as they are chosen, and more rows as prefill, which
// larger shapes would take.
func (c *projectCase) multiply(p projection) {
	p.x, p.rows = c.x, c.rows
	c.run(func(e encoder) {
		if p.rows > windowRows && !p.ragged() {
			p.prefill(e)
			return
		}
		p.encode(e)
	})
}

// spare is how many elements past the end of a result must stay as they were.
const spare = 40

// result reads rows of a result, and checks that nothing was written past them.
func (c *projectCase) result(what string, dst view, want []float64, tolerance float64) error {
	n := len(want)
	if err := vectors.Near(c.read(dst, n), want, tolerance+roundoff(dst.elem)); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if err := untouched(dst.bytes()[n*dst.elem.size():][:spare*dst.elem.size()]); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// checkProject compares the launchers in turn with float64, at every number of
// rows: each format meets each tile, and each launcher tiles of each kind.
func checkProject(d *device, f projectFormat, x elem) error {
	r := rand.New(rand.NewPCG(uint64(f.dtype)<<8|uint64(f.group), uint64(x)))
	for i, rows := range projectRows {
		in := f.in[(i+len(f.in)-1)%len(f.in)]
		err := withBed(d, func(b *bed) error {
			c := newProjectCase(b, r, f, x, in, rows)
			switch (i + int(f.dtype) + int(x)) % 4 {
			case 0:
				return c.checkGated(elemF32)
			case 1:
				return c.checkGated(elemBF16)
			case 2:
				return c.checkAdd()
			}
			return c.checkThree()
		})
		if err != nil {
			return fmt.Errorf("%d inputs, %d rows: %w", in, rows, err)
		}
	}
	return nil
}

// checkThree is a dispatch of three weights, the second with a bias.
func (c *projectCase) checkThree() error {
	var w []linear
	var dst []view
	var want [][]float64
	for i, out := range []int{33, 5, 8} {
		var bias []float32
		if i == 1 {
			bias = vectors.Normals(c.r, out)
		}
		l, y := c.weight(out, bias)
		w, dst, want = append(w, l), append(dst, c.empty(c.rows*out+spare, elemF32)), append(want, y)
	}
	c.multiply(projection{dst: dst, w: w})
	for i := range w {
		if err := c.result(fmt.Sprintf("%d of 3", i+1), dst[i], want[i], projectTolerance); err != nil {
			return err
		}
	}
	return nil
}

func (c *projectCase) checkAdd() error {
	const out = 23
	w, want := c.weight(out, vectors.Normals(c.r, out))
	before := vectors.Normals(c.r, c.rows*out)
	dst := c.empty(c.rows*out+spare, elemF32)
	copy(dst.bytes(), c.floats(before).bytes()[:4*len(before)])
	for i, v := range before {
		want[i] += float64(v)
	}
	c.multiply(projection{dst: []view{dst}, w: []linear{w}, add: true})
	return c.result("added", dst, want, projectTolerance)
}

// checkGated is SwiGLU.
func (c *projectCase) checkGated(to elem) error {
	gate, up, want := c.gated(19)
	dst := c.empty(len(want)+spare, to)
	c.multiply(projection{dst: []view{dst}, w: []linear{gate, up}, gated: true})
	return c.result("gated to "+to.name(), dst, want, 2*projectTolerance)
}

// gated is a gate, with a bias that takes some of it out of the range of exp in
// f32, and what is beside it.
func (c *projectCase) gated(out int) (gate, up linear, want []float64) {
	bias := vectors.Normals(c.r, out)
	copy(bias, []float32{-300, 300, -100, 100})
	gate, want = c.weight(out, bias)
	up, ups := c.weight(out, vectors.Normals(c.r, out))
	for i, u := range ups {
		want[i] *= u / (1 + math.Exp(-want[i]))
	}
	return gate, up, want
}

// checkMatvec compares the kernels of one row, called as they are chosen.
func checkMatvec(d *device, f projectFormat, x elem) error {
	r := rand.New(rand.NewPCG(uint64(f.dtype)<<8|uint64(f.group), uint64(x)+200))
	for _, in := range append(f.in, f.longIn) {
		if in%8 != 0 {
			continue // not for these
		}
		err := withBed(d, func(b *bed) error {
			c := newProjectCase(b, r, f, x, in, 1)
			first, want1 := c.weight(18, nil)
			second, want2 := c.weight(5, vectors.Normals(r, 5))
			gate, up, want3 := c.gated(7)
			dst := []view{c.empty(18+spare, elemF32), c.empty(5+spare, elemF32), c.empty(7+spare, elemBF16)}
			c.run(func(e encoder) {
				projection{dst: dst[:2], x: c.x, rows: 1, w: []linear{first, second}}.matvec(e)
				projection{dst: dst[1:2], x: c.x, rows: 1, w: []linear{second}, add: true}.matvec(e)
				projection{dst: dst[2:], x: c.x, rows: 1, w: []linear{gate, up}, gated: true}.matvec(e)
			})
			for i := range want2 {
				want2[i] *= 2
			}
			return errors.Join(
				c.result("first of 2", dst[0], want1, projectTolerance),
				c.result("second of 2, added to itself", dst[1], want2, projectTolerance),
				c.result("gated", dst[2], want3, 2*projectTolerance))
		})
		if err != nil {
			return fmt.Errorf("%d inputs: %w", in, err)
		}
	}
	return nil
}

// checkRowBits compares the bits of each row of a decode forward with those of
// the row in a forward of windowRows, whatever tile takes it.
func checkRowBits(d *device, f projectFormat, x elem) error {
	const out, rows = 20, 2*windowRows + 6
	in := f.in[len(f.in)-1]
	r := rand.New(rand.NewPCG(uint64(f.dtype)<<8|uint64(f.group), uint64(x)+100))
	return withBed(d, func(b *bed) error {
		c := newProjectCase(b, r, f, x, in, rows)
		w, want := c.weight(out, vectors.Normals(r, out))
		dst := c.empty(rows*out+spare, elemF32)
		c.run(func(e encoder) { project(e, []view{dst}, c.x, rows, []linear{w}, true) })
		if err := c.result("windows", dst, want, projectTolerance); err != nil {
			return err
		}
		all := c.read(dst, rows*out)
		for i, n := range []int{1, 2, 7, 8, 16, 31, 32} {
			first := 5 * i
			part := c.empty(n*out, elemF32)
			c.run(func(e encoder) {
				project(e, []view{part}, c.x.at(first*in*x.size()), n, []linear{w}, true)
			})
			if err := vectors.Equal(c.read(part, n*out), all[first*out:(first+n)*out]); err != nil {
				return fmt.Errorf("%d rows from row %d on, against %d together: %w", n, first, rows, err)
			}
		}
		return nil
	})
}

// widened is a weight as quant.Row has it.
func widened(t *backend.Tensor) []float32 {
	out, in := t.Shape[0], t.Shape[1]
	w := make([]float32, out*in)
	for o := range out {
		quant.Row(w[o*in:], t, o)
	}
	return w
}
