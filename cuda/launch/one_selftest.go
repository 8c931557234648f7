package launch

import "windrow/backend"

func init() {
	registerNibbles("one", checkOne)
}

// checkOne compares projections of one row by kernels/one.cuh with kernels/stream.cuh,
// bit for bit. It does nothing on devices that it is not for.
func checkOne(d *Device, dt backend.DType, group int) error {
	if !d.takesTiled() {
		return nil
	}
	b := newProjectBench(d, uint64(dt)<<8|uint64(group)+5)
	ins := append(shapesOf(dt, group), 4096)
	if d.brief {
		ins = []int{briefInputs}
	}
	for i, in := range ins {
		c := b.tiledCase(dt, group, in)
		c.stages, c.held = 2+i%2, never
		for _, c.blocks = range []int{0, 5, 1} { // of one strip, of some but not all alike, of two passes
			c.three(TiledForm{}, 1)
			c.gated(TiledForm{}, 1)
		}
	}
	return b.close()
}
