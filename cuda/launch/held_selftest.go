package launch

import (
	"windrow/backend"
)

func init() {
	registerNibbles("held", checkHeld)
}

// checkHeld compares projections of few rows by kernels/held.cuh with kernels/stream.cuh, bit for bit, where
// warps have all as many inputs or not, whole granules or halves, in rings of all sizes. It does nothing
// for types, and on devices, that it is not for.
func checkHeld(d *Device, dt backend.DType, group int) error {
	if f, _ := formatOf(dt, group); !f.rounds || !d.takesTiled() {
		return nil
	}
	b := newProjectBench(d, uint64(dt)<<8|uint64(group)+11)
	ins, rows := []int{2048, 2560, 3072, 4096, 4736, 5120, 6144, 8192}, []int{1, 2, 3, 7, 8, 11, fewRowsAtMost}
	if d.brief {
		ins, rows = []int{2048, 2560, 4096, 5120, 6144, 8192}, []int{1, 7, 11}
	}
	for i, rows := range []int{2, 5, 8} {
		d.Tuning = Tuning{held: always, blocks: []int{0, 2}[i%2], stages: 2 + i}
		b.checkNormed(dt, group, fewWorkers*heldNormed, rows)
	}
	for i, in := range ins {
		c := b.tiledCase(dt, group, in)
		c.held = always
		for j, rows := range rows {
			c.stages = 2 + (i+j)%3
			c.blocks = []int{0, 5, 1}[(i+j)%3] // of one strip, of some but not all alike, of all
			c.three(TiledForm{}, rows)
			c.gated(TiledForm{}, rows)
		}
		d.Tuning = Tuning{held: always, blocks: []int{0, 2}[i%2]}
		b.checkNormed(dt, group, in, 1)
	}
	return b.close()
}
