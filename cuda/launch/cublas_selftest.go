package launch

import (
	"fmt"
	"math/rand/v2"

	"windrow/backend/vectors"
	"windrow/cuda/driver"
)

func init() { registerSelfTest("cuBLASLt", checkBLAS) }

// checkBLAS compares products by cuBLASLt, where the device has it, with
// float64.
func checkBLAS(d *Device) error {
	if d.blas == nil {
		return nil
	}
	r := rand.New(rand.NewPCG(6, 1))
	for _, s := range []struct{ rows, out, in, shift int }{
		{1, 8, 64, 0}, {17, 40, 72, 0}, {130, 64, 128, 16}, {64, 256, 192, 128},
	} {
		for _, form := range []struct{ f32, accumulate bool }{{true, false}, {true, true}, {false, false}} {
			if err := checkBLASShape(d, r, s.rows, s.out, s.in, s.shift, form.f32, form.accumulate); err != nil {
				return fmt.Errorf("%d rows by [%d, %d], operands shifted by %d bytes, f32 %v, accumulated %v: %w", s.rows, s.out, s.in, s.shift, form.f32, form.accumulate, err)
			}
		}
	}
	return nil
}

func checkBLASShape(d *Device, r *rand.Rand, rows, out, in, shift int, f32, accumulate bool) error {
	b := &bed{d: d}
	defer b.free()
	x, w, before := rounded(vectors.Normals(r, rows*in)), rounded(vectors.Normals(r, out*in)), vectors.Normals(r, rows*out)
	// The shift puts zeros before the values.
	shifted := func(x []float32, size int) []float32 { return append(make([]float32, shift/size), x...) }
	px, pw := b.halves(shifted(x, 2))+driver.Ptr(shift), b.halves(shifted(w, 2))+driver.Ptr(shift)
	pd := b.floats(shifted(before, 4)) + driver.Ptr(shift)
	// Twice: the second time the plan is known.
	for range 2 {
		d.enqueue(func() error { return d.blas.matmul(d.Stream, pd, f32, pw, px, rows, out, in, accumulate) })
	}
	want := make([]float64, rows*out)
	for row := range rows {
		for o := range out {
			sum := 0.0
			for k := range in {
				sum += float64(x[row*in+k]) * float64(w[o*in+k])
			}
			if accumulate {
				sum = 2*sum + float64(before[row*out+o])
			}
			want[row*out+o] = sum
		}
	}
	if f32 {
		return vectors.Near(b.readFloats(pd, rows*out), want, 1e-5)
	}
	return vectors.Near(b.readHalves(pd, rows*out), want, 1.0/256)
}
