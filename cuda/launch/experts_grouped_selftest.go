package launch

import (
	"fmt"

	"windrow/backend"
	"windrow/backend/vectors"
)

func init() { registerPacked("grouped experts", checkGrouped) }

// groupedShapes have tiles that are full, and that have a row, strips that do not fill an item,
// inputs of half a granule and of more than the ring of rows holds, more items than blocks, and
// shared experts. Blocks of 256 have no halves.
func groupedShapes(dt backend.DType, brief bool) []expertShape {
	switch super := dt == backend.Q4_K || dt == backend.Q6_K; {
	case brief && super:
		return []expertShape{{5, 2, 768, 256, 256}}
	case brief:
		return []expertShape{{4, 2, 640, 128, 0}, {5, 2, 384, 128, 128}}
	case super:
		return []expertShape{{5, 2, 512, 256, 0}, {10, 8, 256, 256, 256}, {6, 3, 2304, 768, 0}, {40, 8, 256, 512, 0}}
	}
	return []expertShape{{5, 2, 384, 128, 0}, {10, 8, 128, 256, 256}, {6, 3, 2176, 640, 0}, {40, 8, 128, 512, 0}}
}

// checkGrouped compares kernels/grouped_wide.cuh with kernels/grouped.cuh, and with inputs in
// parts with kernels/experts.cuh, bit for bit. It does nothing on devices that it is not for.
func checkGrouped(d *Device, dt backend.DType, group int) error {
	if !d.takesTiled() {
		return nil
	}
	defer d.FreeMixtures()
	prompts, decoded := []int{131, 300}, []int{33, 70, 128}
	if d.brief {
		prompts, decoded = []int{130}, []int{70}
	}
	for _, s := range groupedShapes(dt, d.brief) {
		b := newExpertsBench(d, dt, group, s, false)
		compare := func(rows int, decode bool, tiles []int) {
			x, before := b.inputs(rows), b.normals(rows*b.width)
			d.Tuning = Tuning{groupedApart: true}
			want, _ := b.run(x, before, decode)
			for _, tile := range tiles {
				d.Tuning = Tuning{grouped: tile}
				got, _ := b.run(x, before, decode)
				if b.err == nil {
					if err := vectors.Equal(got, want); err != nil {
						b.err = fmt.Errorf("%d rows by tiles of %d, decode %v: %w", rows, 8*tile, decode, err)
					}
				}
			}
		}
		for _, rows := range prompts {
			compare(rows, false, groupedTiles)
		}
		for _, rows := range decoded {
			compare(rows, true, groupedPartTiles)
		}
		d.Tuning = Tuning{}
		if err := b.close(); err != nil {
			return fmt.Errorf("%d of %d experts of %d in %d: %w", s.chosen, s.experts, s.inner, s.width, err)
		}
	}
	return nil
}
