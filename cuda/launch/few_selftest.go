package launch

import "windrow/backend"

func init() {
	registerNibbles("few", checkFew)
}

// checkFew compares projections of few rows by kernels/few.cuh with kernels/stream.cuh, bit for
// bit: of rows that fill a tile or do not. It does nothing for types, and on devices,
// that it is not for.
func checkFew(d *Device, dt backend.DType, group int) error {
	if f, _ := formatOf(dt, group); !f.rounds || !d.takesTiled() {
		return nil
	}
	b := newProjectBench(d, uint64(dt)<<8|uint64(group)+7)
	ins := []int{128, 1152, 2048, 4096} // units of no warp, of a half, of one, of several
	if d.brief {
		ins = []int{1152}
	}
	for i, in := range ins {
		c := b.tiledCase(dt, group, in)
		c.stages, c.chunk = 2+i%2, 1+i%3
		for j, rows := range []int{2, 3, 4, 7, 8, 11, fewRowsAtMost} {
			c.blocks = []int{0, 5, 1}[(i+j)%3] // of one strip, of some but not all alike, of all
			for c.cluster = 1; c.cluster <= fewMostCluster; c.cluster *= 2 {
				c.three(TiledForm{}, rows)
				c.gated(TiledForm{}, rows)
			}
		}
	}
	return b.close()
}
