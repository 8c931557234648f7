package launch

import (
	"fmt"

	"windrow/backend"
	"windrow/backend/vectors"
)

func init() {
	registerNibbles("few experts", checkFewExperts)
}

// fewShapes have inputs of half a granule, strips that do not fill a team, experts that more
// rows choose than a slot has, and items that take all rings more than once.
func fewShapes(d *Device, dt backend.DType) []expertShape {
	switch {
	case dt == backend.Q4_K:
		return []expertShape{{5, 2, 512, 256, 256}}
	case d.brief:
		return []expertShape{{5, 2, 576, 256, 256}, {60, 8, 512, 256, 0}}
	}
	return []expertShape{{5, 2, 576, 192, 192}, {140, 8, 1024, 96, 0}, {60, 8, 512, 256, 0}, {260, 8, 512, 256, 256}}
}

// checkFewExperts compares mixtures of few rows, whose gate and up go through
// kernels/experts_few.cuh, with the same rows among more, which do not, bit for bit. It does
// nothing on devices that it is not for.
func checkFewExperts(d *Device, dt backend.DType, group int) error {
	if !d.takesTiled() {
		return nil
	}
	defer d.FreeMixtures()
	defer func(t Tuning) { d.Tuning = t }(d.Tuning)
	const rows = 20
	for _, s := range fewShapes(d, dt) {
		b := newExpertsBench(d, dt, group, s, false)
		x, before := b.inputs(rows), b.normals(rows*b.width)
		got, _ := b.run(x, before, true)
		for _, n := range []int{1, 2, -2, 7, fewGatedRows, -fewGatedRows} {
			d.Tuning.expertsApart = n < 0 // in two launches
			d.Tuning.expertsTight = n == 7
			n = max(n, -n)
			for _, from := range []int{0, rows - n} {
				part := func(x []float32) []float32 { return x[from*b.width : (from+n)*b.width] }
				same := func(what string) {
					alone, _ := b.run(part(x), part(before), true)
					if b.err != nil {
						return
					}
					if err := vectors.Equal(alone, part(got)); err != nil {
						b.err = fmt.Errorf("%d of %d rows, those from %d on%s: %w", n, rows, from, what, err)
					}
				}
				same("")
				if n > 1 {
					continue
				}
				if b.e.Leave(&b.router); b.router.Left {
					same(", chosen by the experts' launches")
					b.router.Left, b.e.Router = false, nil
				}
			}
		}
		if err := b.close(); err != nil {
			return fmt.Errorf("%d of %d experts of %d in %d, shared %d: %w", s.chosen, s.experts, s.inner, s.width, s.shared, err)
		}
	}
	return nil
}
