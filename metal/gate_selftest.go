package metal

import (
	"fmt"
	"math"
	"math/rand/v2"

	"windrow/backend/vectors"
)

func init() {
	registerSelfTest("gate", checkGate)
}

// checkGate compares the gate with float64, at sizes that are no multiple of 4
// and at gates whose exponential leaves f32.
func checkGate(d *device) error {
	r := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{1, 6, 1024, 1028, 1029} {
		for _, e := range []elem{elemF32, elemBF16} {
			gate, up := vectors.Normals(r, n), vectors.Normals(r, n)
			copy(gate, []float32{1, -200, 200, -100, 0, -88})
			want := make([]float64, n)
			for i, g := range gate {
				want[i] = float64(g) / (1 + math.Exp(-float64(g))) * float64(up[i])
			}
			err := withBed(d, func(b *bed) error {
				dst := b.empty(n+4, e)
				b.run(func(x encoder) { gateRows(x, dst, b.floats(gate), b.floats(up), n) })
				if err := vectors.Near(b.read(dst, n), want, 1e-6+roundoff(e)); err != nil {
					return err
				}
				return untouched(dst.bytes()[n*e.size():])
			})
			if err != nil {
				return fmt.Errorf("%d elements to %s: %w", n, e.name(), err)
			}
		}
	}
	return nil
}
