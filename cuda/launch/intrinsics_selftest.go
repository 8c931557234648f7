package launch

import (
	"encoding/binary"
	"fmt"
	"math"

	"windrow/cuda/driver"
)

// The self-tests of kernels/intrinsics.cu compare each intrinsic that kernels are
// made of with its definition, on the emulator and on a device alike.
func init() {
	registerSelfTest("intrinsics: mma_bf16", testMMA)
	registerSelfTest("intrinsics: load_matrix", testLoadMatrix)
	registerSelfTest("intrinsics: shuffles", testShuffles)
	registerSelfTest("intrinsics: approximations", testApproximations)
	registerSelfTest("intrinsics: ticket", testTicket)
}

// scratch holds the device memory of a self-test.
type scratch struct {
	d    *Device
	ptrs []driver.Ptr
	err  error
}

// place copies numbers into new device memory. Values are fixed-size numbers
// or slices of them, in the host's (little-endian) layout.
func (s *scratch) place(values any) driver.Ptr {
	if s.err != nil {
		return 0
	}
	data, err := binary.Append(nil, binary.LittleEndian, values)
	if err != nil {
		s.err = err
		return 0
	}
	p, err := s.d.Context.Alloc(len(data))
	if err == nil {
		s.ptrs = append(s.ptrs, p)
		err = s.d.Context.Upload(p, data)
	}
	s.err = err
	return p
}

// fetch waits for the launches and reads values back.
func (s *scratch) fetch(values any, from driver.Ptr) {
	if s.err == nil {
		s.err = s.d.Take()
	}
	if s.err == nil {
		s.err = s.d.Stream.Synchronize()
	}
	if s.err != nil {
		return
	}
	data := make([]byte, binary.Size(values))
	if s.err = s.d.Context.Download(data, from); s.err == nil {
		_, s.err = binary.Decode(data, binary.LittleEndian, values)
	}
}

func (s *scratch) free() {
	for _, p := range s.ptrs {
		if err := s.d.Context.Free(p); err != nil && s.err == nil {
			s.err = err
		}
	}
}

func testMMA(d *Device) error {
	var a, b [256]uint16
	var fa, fb [256]float64
	for i := range a {
		x, y := float32(i*37%101-50)/16, float32(i*53%97-48)/16
		a[i], b[i] = uint16(math.Float32bits(x)>>16), uint16(math.Float32bits(y)>>16) // exact: few bits
		fa[i], fb[i] = float64(x), float64(y)
	}
	s := &scratch{d: d}
	defer s.free()
	pa, pb, once, twice := s.place(a[:]), s.place(b[:128]), s.place(make([]float32, 128)), s.place(make([]float32, 128))
	d.launch(kernel{"intrinsics", "intrinsic_mma", 0}, dim{x: 1}, 32, uint64(pa), uint64(pb), uint64(once))
	d.launch(kernel{"intrinsics", "intrinsic_mixed", 0}, dim{x: 1}, 32, uint64(pa), uint64(pb), uint64(twice))
	got, double := make([]float32, 128), make([]float32, 128)
	s.fetch(got, once)
	s.fetch(double, twice)
	for m := range 16 {
		for n := range 8 {
			want := 0.0
			for k := range 16 {
				want += fa[m*16+k] * fb[n*16+k]
			}
			if s.err == nil && math.Abs(float64(got[m*8+n])-want) > 1e-4 {
				s.err = fmt.Errorf("c[%d,%d] is %g, want %g", m, n, got[m*8+n], want)
			}
			if s.err == nil && math.Abs(float64(double[m*8+n])-2*want) > 2e-4 {
				s.err = fmt.Errorf("c[%d,%d] of two products is %g, want %g", m, n, double[m*8+n], 2*want)
			}
		}
	}
	return s.err
}

func testLoadMatrix(d *Device) error {
	in := make([]uint16, 256)
	for i := range in {
		in[i] = uint16(i)
	}
	s := &scratch{d: d}
	defer s.free()
	pin, out := s.place(in), s.place(make([]uint32, 256))
	d.launch(kernel{"intrinsics", "intrinsic_load_matrix", 0}, dim{x: 1}, 32, uint64(pin), uint64(out))
	got := make([]uint32, 256)
	s.fetch(got, out)
	for lane := range 32 {
		g, t := lane/4, lane%4
		for tile := range 4 {
			row := uint32(tile*64 + g*8 + t*2)
			column := uint32(tile*64 + t*16 + g)
			for i, want := range []uint32{row | (row+1)<<16, column | (column+8)<<16} {
				if v := got[i*128+lane*4+tile]; s.err == nil && v != want {
					s.err = fmt.Errorf("tile %d, lane %d, transposed %d: %#x, want %#x", tile, lane, i, v, want)
				}
			}
		}
	}
	return s.err
}

func testShuffles(d *Device) error {
	in := make([]float32, 32)
	var sum, most float64
	for i := range in {
		in[i] = float32(i*29%32) - 9.25
		sum, most = sum+float64(in[i]), max(most, float64(in[i]))
	}
	in[3] = 1 + 1.0/256 // halfway between two bf16 numbers: to the even one below
	in[5] = 1 + 3.0/256 // and above
	sum, most = 0, math.Inf(-1)
	for _, x := range in {
		sum, most = sum+float64(x), max(most, float64(x))
	}
	s := &scratch{d: d}
	defer s.free()
	pin, out := s.place(in), s.place(make([]float32, 6*32))
	d.launch(kernel{"intrinsics", "intrinsic_shuffle", 0}, dim{x: 1}, 32, uint64(pin), uint64(out))
	got := make([]float32, 6*32)
	s.fetch(got, out)
	for i := range in {
		for j, want := range []float32{in[i^5], in[i*7%32], float32(sum), float32(most), roundBF16(in[i]), roundBF16(in[i] * 3)} {
			if v := got[j*32+i]; s.err == nil && v != want {
				s.err = fmt.Errorf("result %d of lane %d is %g, want %g", j, i, v, want)
			}
		}
	}
	return s.err
}

// roundBF16 rounds to the nearest bf16 number, halves to the even one.
func roundBF16(x float32) float32 {
	bits := math.Float32bits(x)
	return math.Float32frombits((bits + 0x7fff + bits>>16&1) &^ 0xffff)
}

// The bounds are those of the PTX manual for the approximations, in relative
// error but for lg2 (absolute near 1), with what f32 rounding of an argument adds.
func testApproximations(d *Device) error {
	const n = 1001
	in := make([]float32, n)
	for i := range in {
		in[i] = (float32(i) - 500) / 40
	}
	s := &scratch{d: d}
	defer s.free()
	pin, out := s.place(in), s.place(make([]float32, 5*n))
	d.launch(kernel{"intrinsics", "intrinsic_math", 0}, dim{x: (n + 127) / 128}, 128, uint64(pin), uint64(out), n)
	got := make([]float32, 5*n)
	s.fetch(got, out)
	for i, v := range in {
		x := float64(v)
		y := float64(float32(x*x + 1))
		for j, want := range []float64{math.Exp(x), math.Exp2(x), math.Log2(y), 1 / math.Sqrt(y), 1 / y} {
			bound := []float64{1.5e-6, 3e-7, 3e-7, 3e-7, 1.2e-7}[j]
			scale := math.Abs(want)
			if j == 2 {
				scale = max(scale, 1)
			}
			if g := float64(got[j*n+i]); s.err == nil && !(math.Abs(g-want) <= bound*scale) {
				s.err = fmt.Errorf("function %d of %g is %g, want %g", j, v, g, want)
			}
		}
	}
	return s.err
}

func testTicket(d *Device) error {
	const n, blocks = 3000, 24
	in := make([]float32, n)
	want := float32(0)
	for i := range in {
		in[i] = float32(i % 64)
		want += in[i] // whole numbers below 2^24: exact in any order
	}
	s := &scratch{d: d}
	defer s.free()
	pin, partials, ticket, out := s.place(in), s.place(make([]float32, blocks)), s.place(uint32(0)), s.place([]float32{0, 0})
	const launches = 3
	for range launches {
		d.launch(kernel{"intrinsics", "intrinsic_ticket", 1024}, dim{x: blocks}, 128, uint64(pin), uint64(partials), uint64(ticket), uint64(out), n)
	}
	var got [2]float32
	s.fetch(&got, out)
	if s.err == nil && got != [2]float32{want, launches} {
		s.err = fmt.Errorf("sum and number of last blocks are %v, want %g and %d", got, want, launches)
	}
	return s.err
}
