package launch

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/cuda/driver"
	"windrow/quant"
)

func init() {
	for _, f := range projectFormats {
		name := vectors.Name(f.dt, f.group)
		registerSelfTest("project/"+name, func(d *Device) error { return checkProjections(d, f.dt, f.group) })
		registerSelfTest("project/"+name+"/rows", func(d *Device) error { return checkRowBits(d, f.dt, f.group) })
		if f.dt.Quantized() {
			registerSelfTest("pack/"+name, func(d *Device) error { return checkDequantise(d, f.dt, f.group) })
		}
	}
}

// registerNibbles registers a self-test of each format of 4-bit weights, which some kernels are for alone.
func registerNibbles(prefix string, check func(d *Device, dt backend.DType, group int) error) {
	registerFormats(prefix, format.nibbles, check)
}

// registerPacked registers a self-test of each format of packed weights.
func registerPacked(prefix string, check func(d *Device, dt backend.DType, group int) error) {
	registerFormats(prefix, func(format) bool { return true }, check)
}

func registerFormats(prefix string, takes func(format) bool, check func(d *Device, dt backend.DType, group int) error) {
	for _, f := range projectFormats {
		if packed, ok := formatOf(f.dt, f.group); ok && takes(packed) {
			registerSelfTest(prefix+"/"+vectors.Name(f.dt, f.group), func(d *Device) error { return check(d, f.dt, f.group) })
		}
	}
}

var projectFormats = []struct {
	dt    backend.DType
	group int
}{
	{backend.BF16, 0}, {backend.Affine4, 32}, {backend.Affine4, 64}, {backend.Affine4, 128},
	{backend.Affine8, 32}, {backend.Affine8, 64}, {backend.Affine8, 128},
	{backend.Q8_0, 0}, {backend.Q4_0, 0}, {backend.Q4_K, 0}, {backend.Q6_K, 0},
}

// projectBench keeps what a self-test has on the device, and the first error.
type projectBench struct {
	d    *Device
	rng  *rand.Rand
	held []driver.Ptr
	err  error
}

func newProjectBench(d *Device, seed uint64) *projectBench {
	return &projectBench{d: d, rng: rand.New(rand.NewPCG(seed, 7))}
}

// close frees all and returns the first error.
func (b *projectBench) close() error {
	if err := b.d.Take(); b.err == nil {
		b.err = err
	}
	if err := b.d.Stream.Synchronize(); b.err == nil {
		b.err = err
	}
	for _, p := range b.held {
		b.d.Context.Free(p)
	}
	b.d.Tuning = Tuning{}
	b.d.prefill.free(b.d.Context) // tensor maps
	return b.err
}

func (b *projectBench) alloc(n int) driver.Ptr {
	p, err := b.d.Context.Alloc(n)
	if err != nil && b.err == nil {
		b.err = err
	}
	if err == nil {
		b.held = append(b.held, p)
	}
	return p
}

func (b *projectBench) upload(data []byte) driver.Ptr {
	p := b.alloc(len(data))
	if b.err == nil {
		b.err = b.d.Context.Upload(p, data)
	}
	return p
}

func (b *projectBench) uploadF32(x []float32) driver.Ptr {
	data := make([]byte, 4*len(x))
	for i, v := range x {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(v))
	}
	return b.upload(data)
}

func (b *projectBench) download(n int, p driver.Ptr) []byte {
	data := make([]byte, n)
	if b.err == nil {
		b.err = b.d.Take()
	}
	if b.err == nil {
		b.err = b.d.Stream.Synchronize()
	}
	if b.err == nil {
		b.err = b.d.Context.Download(data, p)
	}
	return data
}

func (b *projectBench) downloadF32(n int, p driver.Ptr) []float32 {
	data, x := b.download(4*n, p), make([]float32, n)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return x
}

func (b *projectBench) normals(n int) []float32 { return vectors.Normals(b.rng, n) }

// logits are random weights [out, in] of a router, whose logits are about as large as scale.
func (b *projectBench) logits(out, in int, scale float64) []float32 {
	w := b.normals(out * in)
	for i := range w {
		w[i] *= float32(scale / math.Sqrt(float64(in)))
	}
	return w
}

// rows are random bf16 inputs, on the device and widened.
func (b *projectBench) rows(rows, in int) (driver.Ptr, []float32) {
	x, data := b.normals(rows*in), make([]byte, 2*rows*in)
	for i, v := range x {
		h := quant.F32ToBF16(v)
		binary.LittleEndian.PutUint16(data[2*i:], h)
		x[i] = quant.BF16ToF32(h)
	}
	return b.upload(data), x
}

// tensor is a random weight with an offset of its mean, so that biases and
// minima are at work.
func (b *projectBench) tensor(dt backend.DType, group, out, in int) backend.Tensor {
	w := b.normals(out * in)
	for i := range w {
		w[i] = 0.05*w[i] + 0.02
	}
	return quant.Encode("self-test", dt, out, in, group, w)
}

// matrix puts a weight on the device as Backend.Matrix does.
func (b *projectBench) matrix(t backend.Tensor) *Weight {
	m := &Weight{DType: t.DType, Out: t.Shape[0], In: t.Shape[1], Group: t.Group, Raw: b.upload(t.Data)}
	if !t.DType.Quantized() {
		return m
	}
	var scales, biases driver.Ptr
	if t.DType.Affine() {
		scales, biases = b.upload(t.Scales), b.upload(t.Biases)
	}
	if b.err != nil {
		return m
	}
	if m.Packed, b.err = b.d.Pack(t, m.Raw, scales, biases); b.err == nil {
		b.held = append(b.held, m.Packed.Data)
		b.err = b.d.Stream.Synchronize()
	}
	return m
}

// widened widens a weight.
func widened(t backend.Tensor) []float32 {
	w := make([]float32, t.Elements())
	for o := range t.Shape[0] {
		quant.Row(w[o*t.Shape[1]:], &t, o)
	}
	return w
}

// multiplied widens a weight as projections of few rows multiply it.
func multiplied(t backend.Tensor) []float32 { return asMultiplied(t.DType, widened(t)) }

// asMultiplied rounds 4-bit affine weights to bf16, as those projections do.
func asMultiplied(dt backend.DType, w []float32) []float32 {
	if dt != backend.Affine4 {
		return w
	}
	return rounded(w)
}

// product is x·wᵀ + bias in float64.
func product(x, w, bias []float32, rows, out, in int) []float64 {
	y := make([]float64, rows*out)
	for r := range rows {
		for o := range out {
			sum := 0.0
			for k, v := range x[r*in : (r+1)*in] {
				sum += float64(v) * float64(w[o*in+k])
			}
			if bias != nil {
				sum += float64(bias[o])
			}
			y[r*out+o] = sum
		}
	}
	return y
}

// nearProduct compares by the root mean square of want: of all differences, and of
// the largest.
func nearProduct(what string, got []float32, want []float64, relative float64) error {
	var d2, w2, worst float64
	at := 0
	for i, w := range want {
		d := math.Abs(float64(got[i]) - w)
		d2, w2 = d2+d*d, w2+w*w
		if !(d <= worst) {
			worst, at = d, i
		}
	}
	scale := math.Sqrt(w2 / float64(len(want)))
	if !(math.Sqrt(d2) <= relative*math.Sqrt(w2)) || !(worst <= 8*relative*scale) {
		return fmt.Errorf("%s: relative error %.2g, worst at %d: %v, want %v; %.2g is allowed", what, math.Sqrt(d2/w2), at, got[at], want[at], relative)
	}
	return nil
}

// Sums are in f32, over products of operands of up to 143 in the 4-bit formats;
// tensor cores cut off what lies 24 bits under a sum's largest term.
const projectTolerance = 2e-5

// shapesOf are inputs that end within a unit, as far as the format allows.
func shapesOf(dt backend.DType, group int) []int {
	switch {
	case dt == backend.Q4_K || dt == backend.Q6_K:
		return []int{256, 768}
	case dt == backend.BF16:
		return []int{8, 200, 704}
	case group > 0:
		return []int{group, 5 * group, 640}
	}
	return []int{32, 160, 672}
}

// checkProjections compares every kind of launch with float64.
func checkProjections(d *Device, dt backend.DType, group int) error {
	b := newProjectBench(d, uint64(dt)<<8|uint64(group))
	for i, in := range shapesOf(dt, group) {
		for _, blocks := range []int{0, 3} { // 3: rings go round
			d.Tuning.blocks = blocks
			b.checkThree(dt, group, in, 1+6*i+blocks)
			b.checkGated(dt, group, in, 17-5*i+blocks)
		}
	}
	b.checkAdd(dt, group)
	return b.close()
}

// checkThree is a launch of three weights, the second with a bias, the third
// in bf16 too.
func (b *projectBench) checkThree(dt backend.DType, group, in, rows int) {
	outs := []int{300, 8, 262}
	x, xs := b.rows(rows, in)
	var w []Linear
	var dst []Target
	var want [][]float64
	for i, out := range outs {
		t := b.tensor(dt, group, out, in)
		l, to := Linear{Weight: b.matrix(t)}, Target{F32: b.alloc(4 * rows * out)}
		var bias []float32
		if i == 1 {
			bias = b.normals(out)
			l.Bias = b.uploadF32(bias)
		}
		if i == 2 {
			to.BF16 = b.alloc(2 * rows * out)
		}
		w, dst, want = append(w, l), append(dst, to), append(want, product(xs, multiplied(t), bias, rows, out, in))
	}
	if b.err != nil {
		return
	}
	b.d.Project(dst, x, w, rows)
	for i, out := range outs {
		got := b.downloadF32(rows*out, dst[i].F32)
		b.note(nearProduct(fmt.Sprintf("%d of 3, %d×%d, %d rows", i+1, out, in, rows), got, want[i], projectTolerance))
	}
	b.checkHalves(rows*outs[2], dst[2])
}

// checkHalves compares the bf16 form of a result with its f32 form.
func (b *projectBench) checkHalves(n int, t Target) {
	wide, half := b.downloadF32(n, t.F32), b.download(2*n, t.BF16)
	for i, v := range wide {
		if h := binary.LittleEndian.Uint16(half[2*i:]); h != quant.F32ToBF16(v) && b.err == nil {
			b.err = fmt.Errorf("bf16 of %v is %#x, want %#x", v, h, quant.F32ToBF16(v))
		}
	}
}

func (b *projectBench) note(err error) {
	if b.err == nil {
		b.err = err
	}
}

func (b *projectBench) checkGated(dt backend.DType, group, in, rows int) {
	const out = 276
	x, xs := b.rows(rows, in)
	gate, up := b.tensor(dt, group, out, in), b.tensor(dt, group, out, in)
	bias := b.normals(out)
	dst := Target{F32: b.alloc(4 * rows * out), BF16: b.alloc(2 * rows * out)}
	want := product(xs, multiplied(gate), bias, rows, out, in)
	for i, u := range product(xs, multiplied(up), nil, rows, out, in) {
		want[i] *= u / (1 + math.Exp(-want[i]))
	}
	g, u := Linear{Weight: b.matrix(gate), Bias: b.uploadF32(bias)}, Linear{Weight: b.matrix(up)}
	if b.err != nil {
		return
	}
	b.d.ProjectGated(dst, x, g, u, rows)
	b.note(nearProduct(fmt.Sprintf("gated %d×%d, %d rows", out, in, rows), b.downloadF32(rows*out, dst.F32), want, 2*projectTolerance))
	b.checkHalves(rows*out, dst)
}

// checkAdd adds a projection to what its target holds, more than once: the
// counters of shared tiles must be back at zero.
func (b *projectBench) checkAdd(dt backend.DType, group int) {
	const out, in, rows = 270, 512, 5
	x, xs := b.rows(rows, in)
	t := b.tensor(dt, group, out, in)
	before := b.normals(rows * out)
	l, dst := Linear{Weight: b.matrix(t)}, Target{F32: b.uploadF32(before), Add: true}
	if b.err != nil {
		return
	}
	want := product(xs, multiplied(t), nil, rows, out, in)
	for i := range want {
		want[i] = 3*want[i] + float64(before[i])
	}
	for range 3 {
		b.d.Project([]Target{dst}, x, []Linear{l}, rows)
	}
	b.note(nearProduct("added", b.downloadF32(rows*out, dst.F32), want, projectTolerance))
}

// checkRowBits compares each row's bits with those of 128 rows together.
func checkRowBits(d *Device, dt backend.DType, group int) error {
	const out, in, rows = 320, 512, 128
	b := newProjectBench(d, uint64(dt)<<8|uint64(group)+1)
	t := b.tensor(dt, group, out, in)
	l := Linear{Weight: b.matrix(t)}
	x, xs := b.rows(rows, in)
	dst := Target{F32: b.alloc(4 * rows * out)}
	if b.err != nil {
		return b.close()
	}
	d.Project([]Target{dst}, x, []Linear{l}, rows)
	all := b.downloadF32(rows*out, dst.F32)
	b.note(nearProduct("128 rows", all, product(xs, multiplied(t), nil, rows, out, in), projectTolerance))
	for i, n := range []int{1, 8, 9, 17, 24, 33, 47, 64, 96} {
		first := 5 * i
		d.Tuning = Tuning{shared: (130 + 8*i) << 10, group: []int{0, 2, 3, 6}[i%4]} // other rings
		d.Project([]Target{dst}, x+driver.Ptr(2*first*in), []Linear{l}, min(n, rows-first))
		for j, v := range b.downloadF32(min(n, rows-first)*out, dst.F32) {
			if want := all[first*out+j]; math.Float32bits(v) != math.Float32bits(want) && b.err == nil {
				b.err = fmt.Errorf("row %d among %d: output %d is %v, among 128 it is %v", first+j/out, n, j%out, v, want)
			}
		}
	}
	return b.close()
}

// checkDequantise compares packed weights, widened again, with the reference
// decoder: the same bf16, and none beyond the matrix.
func checkDequantise(d *Device, dt backend.DType, group int) error {
	b := newProjectBench(d, uint64(dt)<<8|uint64(group)+2)
	for _, in := range shapesOf(dt, group) {
		const out = 37
		t := b.tensor(dt, group, out, in)
		w := b.matrix(t)
		dst := b.alloc(2 * out * in)
		if b.err != nil {
			break
		}
		d.dequantise(dst, w)
		got := b.download(2*out*in, dst)
		for i, v := range widened(t) {
			h := quant.BF16ToF32(binary.LittleEndian.Uint16(got[2*i:]))
			if h != quant.BF16ToF32(quant.F32ToBF16(v)) && b.err == nil { // zeros of either sign are equal
				b.err = fmt.Errorf("weight (%d, %d) of %d×%d is %v, want %v rounded", i/in, i%in, out, in, h, v)
			}
		}
	}
	return b.close()
}
