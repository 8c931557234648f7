package metal

import (
	"fmt"
	"math/rand/v2"

	"windrow/backend"
	"windrow/quant"
)

func init() {
	registerSelfTest("embed", checkEmbed)
}

func checkEmbed(d *device) error {
	r := rand.New(rand.NewPCG(1, 1))
	for _, dt := range []backend.DType{backend.F32, backend.F16, backend.BF16} {
		for _, width := range []int{1, 5, 33, 64, 130, 2056} {
			if err := embedCase(d, randomTensor(r, dt, 7, width, 0)); err != nil {
				return err
			}
		}
	}
	return nil
}

// embedCase holds rows of a table of 7 against quant, bit for bit.
func embedCase(d *device, t *backend.Tensor) error {
	tokens, width := []uint32{6, 0, 3, 3, 1}, t.Shape[1]
	err := withBed(d, func(b *bed) error {
		n := len(tokens) * width
		dst := b.empty(n+4, elemF32)
		b.run(func(e encoder) { embedRows(e, dst, b.weight(t), b.words(tokens), len(tokens)) })
		want := make([]float32, n)
		for i, id := range tokens {
			quant.Row(want[i*width:(i+1)*width], t, int(id))
		}
		if err := equal(b.read(dst, n), want); err != nil {
			return err
		}
		return untouched(dst.bytes()[4*n:])
	})
	if err != nil {
		return fmt.Errorf("%v, width %d: %w", t.DType, width, err)
	}
	return nil
}
