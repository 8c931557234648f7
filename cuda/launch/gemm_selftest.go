package launch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"windrow/backend"
	"windrow/cuda/driver"
	"windrow/quant"
)

func init() {
	registerSelfTest("gemm: every tile, odd rows and tails", testGEMMTiles)
	registerSelfTest("gemm: gated", testGEMMGated)
	registerSelfTest("gemm: prefill by every route", testPrefillRoutes)
	registerSelfTest("gemm: packed weights", testPrefillPacked)
	registerSelfTest("gemm: more tiles than blocks", testGEMMPersistent)
}

// gemmCase is one product on the device with its float64 reference on the host.
type gemmCase struct {
	d        *Device
	rows, in int
	x        []float32 // as bf16 holds them
	xAt      driver.Ptr
	owned    []driver.Ptr
	err      error
}

// gemmWeight is a weight of a gemmCase.
type gemmWeight struct {
	gemmPart
	w, bias []float32
}

// gemmSpare is how many floats past the end of a target must stay as they were.
const gemmSpare = 64

// gemmNoise is a stream of values in [-1, 1).
type gemmNoise uint64

func (s *gemmNoise) next() float32 {
	*s = *s*6364136223846793005 + 1442695040888963407
	return float32(int32(*s>>32)) / (1 << 31)
}

// bf16Noise returns n values and their bf16 bytes.
func (s *gemmNoise) bf16Noise(n int) ([]float32, []byte) {
	values, data := make([]float32, n), make([]byte, 2*n)
	for i := range values {
		h := quant.F32ToBF16(s.next())
		binary.LittleEndian.PutUint16(data[2*i:], h)
		values[i] = quant.BF16ToF32(h)
	}
	return values, data
}

func newGEMMCase(d *Device, seed *gemmNoise, rows, in int) *gemmCase {
	c := &gemmCase{d: d, rows: rows, in: in}
	var data []byte
	c.x, data = seed.bf16Noise(rows * in)
	c.xAt = c.upload(data)
	return c
}

func (c *gemmCase) upload(data []byte) driver.Ptr {
	p, err := c.d.Context.Alloc(len(data))
	if err == nil {
		c.owned = append(c.owned, p)
		err = c.d.Context.Upload(p, data)
	}
	c.err = errors.Join(c.err, err)
	return p
}

func (c *gemmCase) free() {
	for _, p := range c.owned {
		c.d.Context.Free(p)
	}
}

// weight adds a weight, with a bias or none.
func (c *gemmCase) weight(seed *gemmNoise, out int, bias bool) gemmWeight {
	w := gemmWeight{gemmPart: gemmPart{out: out}}
	var data []byte
	w.w, data = seed.bf16Noise(out * c.in)
	w.gemmPart.w = c.upload(data)
	if bias {
		data = make([]byte, 4*out)
		w.bias = make([]float32, out)
		for i := range w.bias {
			w.bias[i] = seed.next()
			binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(w.bias[i]))
		}
		w.gemmPart.bias = c.upload(data)
	}
	return w
}

// gemmBefore is what a target holds at first; where nothing is added it may not matter.
func gemmBefore(i int) float32 { return float32(i%97) - 48 }

// targets gives a weight f32 and/or bf16 rows with known contents.
func (c *gemmCase) target(out int, f32, bf16, add bool) Target {
	n := c.rows*out + gemmSpare
	t := Target{Add: add}
	if f32 {
		data := make([]byte, 4*n)
		for i := range n {
			binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(gemmBefore(i)))
		}
		t.F32 = c.upload(data)
	}
	if bf16 {
		data := make([]byte, 2*n)
		for i := range n {
			binary.LittleEndian.PutUint16(data[2*i:], quant.F32ToBF16(gemmBefore(i)))
		}
		t.BF16 = c.upload(data)
	}
	return t
}

// sum is one element of x·wᵀ + bias, and the sum of the products' sizes.
func (c *gemmCase) sum(w gemmWeight, row, out int) (value, size float64) {
	x, r := c.x[row*c.in:][:c.in], w.w[out*c.in:][:c.in]
	for k := range x {
		p := float64(x[k]) * float64(r[k])
		value += p
		size += math.Abs(p)
	}
	if w.bias != nil {
		value += float64(w.bias[out])
	}
	return value, size
}

// check compares a target with want(row, out), which returns a value and the
// error that sums in f32 may have. Every step-th element is checked.
func (c *gemmCase) check(name string, t Target, out, step int, want func(row, out int) (value, slack float64)) error {
	if c.err = errors.Join(c.err, c.d.Take(), c.d.Stream.Synchronize()); c.err != nil {
		return fmt.Errorf("%s: %w", name, c.err)
	}
	n := c.rows * out
	for _, form := range []struct {
		at     driver.Ptr
		size   int
		read   func([]byte) float32
		rounds float64
	}{
		{t.F32, 4, func(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }, 0},
		{t.BF16, 2, func(b []byte) float32 { return quant.BF16ToF32(binary.LittleEndian.Uint16(b)) }, bf16Round},
	} {
		if form.at == 0 {
			continue
		}
		data := make([]byte, (n+gemmSpare)*form.size)
		if err := c.d.Context.Download(data, form.at); err != nil {
			return err
		}
		for i := 0; i < n; i += step {
			value, slack := want(i/out, i%out)
			if t.Add {
				value += float64(gemmBefore(i))
				slack += 1e-5
			}
			got := float64(form.read(data[i*form.size:]))
			if !(math.Abs(got-value) <= slack+form.rounds*(math.Abs(value)+slack)) {
				return fmt.Errorf("%s: row %d of %d, output %d of %d, %d bytes each: %g, want %g", name, i/out, c.rows, i%out, out, form.size, got, value)
			}
		}
		for i := n; i < n+gemmSpare; i++ {
			if form.read(data[i*form.size:]) != gemmBefore(i) {
				return fmt.Errorf("%s: written %d elements past the end", name, i-n)
			}
		}
	}
	return nil
}

// gemmSlack is what sums in f32 of products of that size may be off: tensor cores
// cut, they do not round.
func gemmSlack(size float64) float64 { return 2e-6*size + 1e-6 }

// plainWant is the reference of a product.
func (c *gemmCase) plainWant(w gemmWeight) func(row, out int) (float64, float64) {
	return func(row, out int) (float64, float64) {
		v, size := c.sum(w, row, out)
		return v, gemmSlack(size)
	}
}

// bf16Round is the largest error of a rounding to bf16, relative to what is rounded.
const bf16Round = 1.0 / 256

// gatedWant is the reference of silu(gate)·up. halves tells that the sums of
// both are bf16, and again so with their bias.
func (c *gemmCase) gatedWant(gate, up gemmWeight, halves bool) func(row, out int) (float64, float64) {
	half := func(w gemmWeight, row, out int) (value, slack float64) {
		value, size := c.sum(w, row, out)
		slack = gemmSlack(size)
		if halves && w.bias != nil {
			slack += bf16Round * (math.Abs(value-float64(w.bias[out])) + slack)
		}
		if halves {
			slack += bf16Round * (math.Abs(value) + slack)
		}
		return value, slack
	}
	return func(row, out int) (float64, float64) {
		g, gs := half(gate, row, out)
		u, us := half(up, row, out)
		silu := g / (1 + math.Exp(-g))
		ss := 1.1*gs + 1e-5*(math.Abs(silu)+1.1*gs) // silu's slope is at most 1.1; the device's exp is approximate
		return silu * u, ss*math.Abs(u) + math.Abs(silu)*us + ss*us
	}
}

// forms are the targets of a test: which forms, and whether they are added to.
var gemmForms = []struct{ f32, bf16, add bool }{{f32: true}, {f32: true, add: true}, {bf16: true}, {f32: true, bf16: true}}

// testedTiles lists the tiles that the device takes, of gemm_hopper.cu too.
func (d *Device) testedTiles() ([]gemmTile, error) {
	tiles := []gemmTile{gemmWide, gemmNarrow}
	if deepest := d.gemmTiles()[0]; deepest.name != gemmWide.name {
		tiles = append(tiles, deepest)
	}
	_, err := d.PrepareGEMM(nil, Rows{})
	if d.prefill.hopper != nil {
		tiles = append(tiles, hopperTiles...)
	}
	return tiles, err
}

func testGEMMTiles(d *Device) error {
	defer d.prefill.free(d.Context)
	tiles, err := d.testedTiles()
	for i, t := range tiles {
		seed := gemmNoise(i)
		c := newGEMMCase(d, &seed, 130+i, 200)
		err = errors.Join(err, c.err)
		form := gemmForms[i%len(gemmForms)]
		var w []gemmWeight
		var parts []gemmPart
		for j, out := range []int{264, 72, 8} {
			p := c.weight(&seed, out, j != 1)
			p.dst = c.target(out, form.f32, form.bf16, form.add)
			w, parts = append(w, p), append(parts, p.gemmPart)
		}
		if c.err == nil {
			d.gemm(t, c.xAt, parts, c.in, c.rows)
		}
		for _, p := range w {
			err = errors.Join(err, c.check("tile "+t.plain.name, p.dst, p.out, 1, c.plainWant(p)))
		}
		c.free()
		if err != nil {
			return err
		}
	}
	return nil
}

func testGEMMGated(d *Device) error {
	defer d.prefill.free(d.Context)
	tiles, err := d.testedTiles()
	for i, t := range tiles {
		if t.gated.name == "" {
			continue
		}
		seed := gemmNoise(i)
		c := newGEMMCase(d, &seed, 70+i, 72+8*i)
		gate, up := c.weight(&seed, 136, i != 0), c.weight(&seed, 136, i != 1)
		dst := c.target(136, i != 1, i != 0, false)
		if c.err == nil {
			d.gemmGated(t, dst, c.xAt, gate.gemmPart, up.gemmPart, c.in, c.rows)
		}
		err = errors.Join(err, c.check("gated tile "+t.gated.name, dst, 136, 1, c.gatedWant(gate, up, false)))
		c.free()
		if err != nil {
			return err
		}
	}
	return nil
}

// linear is a weight as the planner knows it.
func (w gemmWeight) linear(in int) Linear {
	return Linear{Weight: &Weight{Out: w.out, In: in, Raw: w.gemmPart.w, DType: backend.BF16, TensorCoreShape: true}, Bias: w.gemmPart.bias}
}

// gemmRoutes lists what can multiply on the device.
func (d *Device) gemmRoutes() []Route {
	routes := []Route{RouteOwn, routeDecode}
	if d.blas != nil {
		routes = append(routes, routeBLAS)
	}
	if d.prefill.hopper != nil {
		routes = append(routes, routeHopper)
	}
	return routes
}

func testPrefillRoutes(d *Device) (err error) {
	defer d.prefill.free(d.Context)
	for _, rows := range []int{130, 257} {
		seed := gemmNoise(rows)
		c := newGEMMCase(d, &seed, rows, 200)
		w := []gemmWeight{c.weight(&seed, 264, true), c.weight(&seed, 72, false), c.weight(&seed, 72, false)}
		err = errors.Join(c.err, c.routes(w))
		c.free()
		if err != nil || d.prefill.hopper == nil {
			return err // one size is enough for the emulator
		}
	}
	return nil
}

// met is how many operands have tensor maps.
func (p *prefill) met() int {
	if p.hopper == nil {
		return 0
	}
	return len(p.hopper.maps)
}

// routes runs w together, then the last two as a gated product, by each route.
func (c *gemmCase) routes(w []gemmWeight) error {
	d := c.d
	var linears []Linear
	for _, p := range w {
		linears = append(linears, p.linear(c.in))
	}
	if _, err := d.PrepareGEMM(linears, Rows{Count: c.rows}); err != nil {
		return err
	}
	for i, route := range d.gemmRoutes() {
		form := gemmForms[(c.rows+i)%len(gemmForms)]
		name := fmt.Sprintf("route %d", route)
		var dst []Target
		for _, p := range w {
			dst = append(dst, c.target(p.out, form.f32, form.bf16, form.add))
		}
		last := len(w) - 1
		gate, up := w[last-1], w[last]
		gated := c.target(up.out, form.f32, form.bf16, false)
		if c.err != nil {
			return c.err
		}
		d.prefill.route = route
		if _, err := d.PrepareGEMM(linears, Rows{Count: c.rows}); err != nil {
			return err
		}
		pass := func() {
			d.PrefillProject(dst, c.xAt, linears, Rows{Count: c.rows})
			d.PrefillGated(gated, c.xAt, linears[last-1], linears[last], Rows{Count: c.rows})
		}
		pass()
		for j, p := range w {
			if err := c.check(name, dst[j], p.out, 1, c.plainWant(p)); err != nil {
				return err
			}
		}
		if err := c.check(name+" gated", gated, up.out, 1, c.gatedWant(gate, up, route == routeBLAS)); err != nil {
			return err
		}
		before, met := d.Context.Allocated(), d.prefill.met()
		pass()
		if d.Context.Allocated() != before || d.prefill.met() != met {
			return fmt.Errorf("%s: a second pass takes %d bytes and %d tensor maps more", name, d.Context.Allocated()-before, d.prefill.met()-met)
		}
		if err := errors.Join(d.Take(), d.Stream.Synchronize()); err != nil {
			return err
		}
		d.prefill.route = routeChosen
	}
	return nil
}

// testPrefillPacked runs two packed weights, which are decoded first.
func testPrefillPacked(d *Device) error {
	defer d.prefill.free(d.Context)
	b := newProjectBench(d, 5)
	const rows, in = 136, 192
	xAt, x := b.rows(rows, in)
	var w []Linear
	var dst []Target
	var weights [][]float32
	for _, out := range []int{72, 264} {
		t := b.tensor(backend.Affine4, 64, out, in)
		w = append(w, Linear{Weight: b.matrix(t)})
		dst = append(dst, Target{F32: b.alloc(4 * rows * out)})
		weights = append(weights, rounded(widened(t)))
	}
	d.prefill.route = RouteOwn
	if b.err == nil {
		_, b.err = d.PrepareGEMM(w, Rows{Count: rows})
	}
	if b.err != nil {
		return b.close()
	}
	d.PrefillProject(dst, xAt, w, Rows{Count: rows})
	d.prefill.route = routeChosen
	for i, l := range w {
		got := b.downloadF32(rows*l.Weight.Out, dst[i].F32)
		if err := nearProduct("packed weights", got, product(x, weights[i], nil, rows, l.Weight.Out, in), 1e-5); err != nil && b.err == nil {
			b.err = err
		}
	}
	return b.close()
}

// testGEMMPersistent gives the blocks of gemm_hopper.cu several tiles each, and
// their rings several rounds. Other devices have no such kernels.
func testGEMMPersistent(d *Device) error {
	defer d.prefill.free(d.Context)
	if _, err := d.PrepareGEMM(nil, Rows{}); err != nil {
		return err
	}
	if d.prefill.hopper == nil {
		return nil
	}
	for i, t := range hopperTiles {
		seed := gemmNoise(i)
		rows, in, out := 2100, 1096, 4096+8
		if d.brief {
			rows, in, out = 400, 456, 520
		}
		c := newGEMMCase(d, &seed, rows, in)
		w := c.weight(&seed, out, true)
		w.dst = c.target(w.out, i != 1, i != 0, i == 0)
		if c.err == nil {
			d.gemm(t, c.xAt, []gemmPart{w.gemmPart}, c.in, c.rows)
		}
		err := c.check("tile "+t.plain.name, w.dst, w.out, 997, c.plainWant(w))
		if err == nil && t.gated.name != "" {
			up := c.weight(&seed, w.out, false)
			dst := c.target(w.out, false, true, false)
			if c.err == nil {
				d.gemmGated(t, dst, c.xAt, w.gemmPart, up.gemmPart, c.in, c.rows)
			}
			err = c.check("gated tile "+t.gated.name, dst, w.out, 997, c.gatedWant(w, up, false))
		}
		c.free()
		if err != nil {
			return err
		}
	}
	return nil
}
