package launch

import (
	"fmt"
	"math/rand/v2"

	"windrow/backend/vectors"
)

func init() { registerSelfTest("sum of parts", checkAddPartials) }

// checkAddPartials compares add_partials with the same additions in the same order, and
// looks at what clear_partials leaves, there and behind it.
func checkAddPartials(d *Device) error {
	b := &bed{d: d}
	defer b.free()
	r := rand.New(rand.NewPCG(21, 1))
	for _, n := range []int{1, 1023, 1024, 4097, 5000} {
		for _, count := range []int{1, 2, 3} {
			want, parts := vectors.Normals(r, n), vectors.Normals(r, count*n)
			dst := b.floats(want)
			d.addPartials(dst, b.floats(parts), count, n)
			if err := d.Take(); err != nil {
				return err
			}
			for p := range count {
				for i := range want {
					want[i] += parts[p*n+i]
				}
			}
			for i, v := range b.readFloats(dst, n) {
				if v != want[i] {
					return fmt.Errorf("element %d of %d with %d parts is %v, want %v", i, n, count, v, want[i])
				}
			}
			if n == 1 {
				continue
			}
			d.clearPartials(dst, n-1)
			if err := d.Take(); err != nil {
				return err
			}
			for i, v := range b.readFloats(dst, n) {
				if i < n-1 && v != 0 || i == n-1 && v != want[i] {
					return fmt.Errorf("element %d of %d is %v after all before the last were cleared", i, n, v)
				}
			}
		}
	}
	return nil
}
