package metal

import (
	"fmt"
	"math"
	"math/rand/v2"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/quant"
)

func init() {
	registerSelfTest("embed", checkEmbed)
}

func checkEmbed(d *device) error {
	r := rand.New(rand.NewPCG(1, 1))
	for _, dt := range []backend.DType{backend.F32, backend.F16, backend.BF16} {
		for _, width := range []int{1, 5, 33, 64, 130, 8232} {
			if err := checkTable(d, vectors.Tensor(r, dt, 7, width, 0)); err != nil {
				return err
			}
		}
	}
	for _, dt := range []backend.DType{backend.Affine4, backend.Affine8} {
		for _, group := range []int{32, 64, 128} {
			for _, groups := range []int{1, 3, 18} {
				if err := checkTable(d, vectors.Tensor(r, dt, 7, groups*group, group)); err != nil {
					return err
				}
			}
		}
	}
	for _, dt := range []backend.DType{backend.Q8_0, backend.Q4_0, backend.Q4_K, backend.Q6_K} {
		for _, blocks := range []int{1, 3} {
			if err := checkTable(d, vectors.Tensor(r, dt, 7, blocks*dt.BlockSize(), 0)); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkTable compares rows of a table of 7 with package quant: floats bit for
// bit; the others within the rounding of a product and a sum, which a compiler
// may fuse.
func checkTable(d *device, t *backend.Tensor) error {
	tokens, width := []uint32{6, 0, 3, 3, 1}, t.Shape[1]
	err := withBed(d, func(b *bed) error {
		n := len(tokens) * width
		table, dst := b.weight(t), b.empty(n+4, elemF32)
		b.run(func(e encoder) { embedRows(e, dst, table, b.words(tokens), len(tokens)) })
		got, want, largest := b.read(dst, n), make([]float32, n), 0.0
		for i, id := range tokens {
			quant.Row(want[i*width:(i+1)*width], t, int(id))
		}
		for _, w := range want {
			largest = max(largest, math.Abs(float64(w)))
		}
		tolerance := 0.0
		if t.DType.Quantized() {
			tolerance = largest / (1 << 22)
		}
		for i, w := range want {
			if d := math.Abs(float64(got[i]) - float64(w)); !(d <= tolerance) {
				return fmt.Errorf("element %d of row %d is %v, want %v", i%width, i/width, got[i], w)
			}
		}
		return untouched(dst.bytes()[4*n:])
	})
	if err != nil {
		return fmt.Errorf("%v, width %d, groups of %d: %w", t.DType, width, t.Group, err)
	}
	return nil
}
