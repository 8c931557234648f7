package launch

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/cuda/driver"
	"windrow/quant"
)

func init() {
	registerSelfTest("embed", checkEmbed)
	registerSelfTest("rms norm", checkRMSNorm)
	registerSelfTest("convert", checkConvert)
	registerSelfTest("columns", checkColumns)
	registerSelfTest("gated activation", checkGatedAct)
}

// bed is the device memory of a self-test. Its methods panic on an error of
// the device, which ends the self-test with that error.
type bed struct {
	d     *Device
	owned []driver.Ptr
}

// free is to be deferred.
func (b *bed) free() {
	b.d.Take()
	for _, p := range b.owned {
		b.d.Context.Free(p)
	}
	b.owned = nil
}

func (b *bed) check(err error) {
	if err != nil {
		panic(err)
	}
}

// bytes uploads data.
func (b *bed) bytes(data []byte) driver.Ptr {
	p, err := b.d.Context.Alloc(max(len(data), 1))
	b.check(err)
	b.owned = append(b.owned, p)
	b.check(b.d.Context.Upload(p, data))
	return p
}

// floats uploads f32 values.
func (b *bed) floats(x []float32) driver.Ptr {
	data := make([]byte, 4*len(x))
	quant.Blocks(data, backend.F32, x)
	return b.bytes(data)
}

// halves uploads values as bf16.
func (b *bed) halves(x []float32) driver.Ptr {
	data := make([]byte, 2*len(x))
	quant.Blocks(data, backend.BF16, x)
	return b.bytes(data)
}

// empty reserves n bytes, all ones: f32 and bf16 values that nobody writes are NaN.
func (b *bed) empty(n int) driver.Ptr {
	return b.bytes(slices.Repeat([]byte{0xff}, n))
}

// step uploads a step block of these values.
func (b *bed) step(v *StepValues, s StepShape) driver.Ptr {
	block := make([]byte, s.Bytes())
	p := b.empty(len(block))
	v.Write(block, s, p)
	b.check(b.d.Context.Upload(p, block))
	return p
}

// read waits for what was launched, and downloads.
func (b *bed) read(p driver.Ptr, n int) []byte {
	b.check(b.d.Take())
	data := make([]byte, n)
	b.check(b.d.Context.Download(data, p))
	return data
}

func (b *bed) readFloats(p driver.Ptr, n int) []float32 {
	data, x := b.read(p, 4*n), make([]float32, n)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return x
}

func (b *bed) readHalves(p driver.Ptr, n int) []float32 {
	data, x := b.read(p, 2*n), make([]float32, n)
	for i := range x {
		x[i] = quant.BF16ToF32(binary.LittleEndian.Uint16(data[2*i:]))
	}
	return x
}

// nans is what memory that nobody wrote reads as.
func nans(n int) []float32 { return slices.Repeat([]float32{float32(math.NaN())}, n) }

// oddWidths are those of the self-tests: around vectors, warps and blocks.
var oddWidths = []int{1, 3, 5, 33, 64, 130, 384, 1027, 4096}

func checkEmbed(d *Device) error {
	const vocab, rows, bucket = 7, 5, 8
	r := rand.New(rand.NewPCG(1, 1))
	for _, dt := range []backend.DType{backend.F32, backend.F16, backend.BF16} {
		for _, width := range oddWidths {
			if err := func() error {
				b := &bed{d: d}
				defer b.free()
				t := vectors.Tensor(r, dt, vocab, width, 0)
				v := &StepValues{Rows: rows, Tokens: []int32{6, 0, 3, 3, 1}}
				step, dst := b.step(v, StepShape{Bucket: bucket}), b.empty(4*bucket*width)
				d.Embed(dst, b.bytes(t.Data), dt, width, step, bucket)
				want := nans(bucket * width)
				for i, id := range v.Tokens {
					quant.Row(want[i*width:(i+1)*width], t, int(id))
				}
				return vectors.Equal(b.readFloats(dst, bucket*width), want)
			}(); err != nil {
				return fmt.Errorf("%v, width %d: %w", dt, width, err)
			}
		}
	}
	return nil
}

func checkRMSNorm(d *Device) error {
	const rows, eps, tolerance = 3, 1e-6, 1e-6
	r := rand.New(rand.NewPCG(2, 1))
	for _, width := range append([]int{9000, 8192, 5120, 4096, 2048}, oddWidths...) {
		if err := func() error {
			b := &bed{d: d}
			defer b.free()
			x, w := vectors.Normals(r, rows*width), vectors.Normals(r, width)
			want := make([]float64, rows*width)
			for i := range rows {
				sum := 0.0
				for _, v := range x[i*width : (i+1)*width] {
					sum += float64(v) * float64(v)
				}
				scale := 1 / math.Sqrt(sum/float64(width)+eps)
				for j := range width {
					want[i*width+j] = float64(x[i*width+j]) * scale * float64(w[j])
				}
			}
			px, pw := b.floats(x), b.floats(w)
			dst32, dst16 := b.empty(4*rows*width), b.empty(2*rows*width)
			d.RMSNorm(dst32, dst16, px, pw, width, rows, eps)
			got := b.readFloats(dst32, rows*width)
			if err := vectors.Near(got, want, tolerance); err != nil {
				return err
			}
			if err := vectors.Equal(b.readHalves(dst16, rows*width), rounded(got)); err != nil {
				return fmt.Errorf("bf16: %w", err)
			}
			// The last and the first row alone, as wanted rows of a step.
			step := b.step(&StepValues{Rows: rows, Want: []int32{2, 0}}, StepShape{Bucket: 8})
			picked, only16 := b.empty(4*8*width), b.empty(2*8*width)
			d.RMSNormWanted(picked, 0, px, pw, width, 8, eps, step)
			d.RMSNormWanted(0, only16, px, pw, width, 8, eps, step)
			chosen := slices.Concat(got[2*width:], got[:width], nans(6*width))
			if err := vectors.Equal(b.readFloats(picked, 8*width), chosen); err != nil {
				return fmt.Errorf("wanted rows: %w", err)
			}
			if err := vectors.Equal(b.readHalves(only16, 8*width), rounded(chosen)); err != nil {
				return fmt.Errorf("wanted rows in bf16: %w", err)
			}
			return nil
		}(); err != nil {
			return fmt.Errorf("width %d: %w", width, err)
		}
	}
	return nil
}

// rounded is x through bf16.
func rounded(x []float32) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = quant.BF16ToF32(quant.F32ToBF16(v))
	}
	return y
}

func checkConvert(d *Device) error {
	r := rand.New(rand.NewPCG(3, 1))
	for _, n := range []int{1, 7, 8, 2049, 5000} {
		if err := func() error {
			b := &bed{d: d}
			defer b.free()
			x := vectors.Normals(r, n)
			// A tie that rounds down, one that rounds up, and what overflows.
			for i, v := range []uint32{0x3f808000, 0x3f818000, 0x7f7fffff, 0x80000000} {
				if i < n {
					x[i] = math.Float32frombits(v)
				}
			}
			half, whole := b.empty(2*n), b.empty(4*n)
			d.ToBF16(half, b.floats(x), n)
			d.ToF32(whole, half, n)
			if err := vectors.Equal(b.readHalves(half, n), rounded(x)); err != nil {
				return err
			}
			return vectors.Equal(b.readFloats(whole, n), rounded(x))
		}(); err != nil {
			return fmt.Errorf("%d elements: %w", n, err)
		}
	}
	return nil
}

// checkColumns puts rows of two widths behind each other: what is not asked for, and
// columns beside them, stay as they are.
func checkColumns(d *Device) error {
	const rows = 5
	r := rand.New(rand.NewPCG(3, 2))
	for _, s := range []struct{ first, second, rest int }{{1, 1, 0}, {5, 3, 4}, {64, 64, 0}, {7, 130, 1}, {1024, 1027, 0}, {8, 2052, 4}} {
		if err := func() error {
			b := &bed{d: d}
			defer b.free()
			stride := s.first + s.second + s.rest
			first, second := vectors.Normals(r, rows*s.first), vectors.Normals(r, rows*s.second)
			whole, half, untouched := b.empty(4*rows*stride), b.empty(2*rows*stride), b.empty(4*rows*stride)
			d.PutColumns(whole, half, b.floats(first), s.first, 0, stride, rows)
			d.PutColumns(whole, 0, b.floats(second), s.second, s.first, stride, rows)
			d.PutColumns(0, half, b.floats(second), s.second, s.first, stride, rows)
			d.PutColumns(untouched, 0, b.floats(nil), 0, 0, stride, rows)
			var want []float32
			for i := range rows {
				want = append(want, first[i*s.first:(i+1)*s.first]...)
				want = append(want, second[i*s.second:(i+1)*s.second]...)
				want = append(want, nans(s.rest)...)
			}
			if err := vectors.Equal(b.readFloats(whole, len(want)), want); err != nil {
				return err
			}
			if err := vectors.Equal(b.readHalves(half, len(want)), rounded(want)); err != nil {
				return err
			}
			return vectors.Equal(b.readFloats(untouched, len(want)), nans(len(want)))
		}(); err != nil {
			return fmt.Errorf("rows of %d and %d: %w", s.first, s.second, err)
		}
	}
	return nil
}

func checkGatedAct(d *Device) error {
	const tolerance = 5e-7
	r := rand.New(rand.NewPCG(4, 1))
	for _, half := range []bool{false, true} {
		for _, n := range []int{1, 6, 1024, 5003} {
			if err := func() error {
				b := &bed{d: d}
				defer b.free()
				gate, up := vectors.Normals(r, n), vectors.Normals(r, n)
				for i := range gate {
					gate[i] *= 8
				}
				for i, v := range []float32{200, -200, 0, 88, -88} {
					if i < n {
						gate[i] = v
					}
				}
				var pg, pu driver.Ptr
				if half {
					gate, up = rounded(gate), rounded(up)
					pg, pu = b.halves(gate), b.halves(up)
				} else {
					pg, pu = b.floats(gate), b.floats(up)
				}
				want := make([]float64, n)
				for i, g := range gate {
					want[i] = float64(g) / (1 + math.Exp(-float64(g))) * float64(up[i])
				}
				dst32, dst16, only := b.empty(4*n), b.empty(2*n), b.empty(2*n)
				d.GatedAct(dst32, dst16, pg, pu, half, n)
				d.GatedAct(0, only, pg, pu, half, n)
				got := b.readFloats(dst32, n)
				if err := vectors.Near(got, want, tolerance); err != nil {
					return err
				}
				for i := range got { // small results, too
					if d := math.Abs(float64(got[i]) - want[i]); d > 2e-6*math.Abs(want[i])+1e-30 {
						return fmt.Errorf("element %d of gate %v is %v, want %v", i, gate[i], got[i], want[i])
					}
				}
				for _, p := range []driver.Ptr{dst16, only} {
					if err := vectors.Equal(b.readHalves(p, n), rounded(got)); err != nil {
						return fmt.Errorf("bf16: %w", err)
					}
				}
				return nil
			}(); err != nil {
				return fmt.Errorf("%d elements, bf16 %v: %w", n, half, err)
			}
		}
	}
	return nil
}
