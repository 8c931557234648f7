package launch

import (
	"fmt"

	"windrow/backend"
)

func init() {
	registerSelfTest("sliced", checkSliced)
}

// slicedOuts and slicedGated end within a tile, and within 16 rows of a weight.
var slicedOuts = []int{264, 24, 152}

const slicedGated = 184

// checkSliced compares each tile of kernels/sliced_hopper.cu with kernels/stream.cuh, and with
// gemm_hopper.cu, bit for bit. It does nothing on devices that it is not for.
func checkSliced(d *Device) error {
	if !d.takesTiled() {
		return nil
	}
	b := newProjectBench(d, 63)
	ins := []int{8, 200, 640, 1096, 4096, 12288} // slices without inputs, ends within a stage, rounds of a ring
	if d.brief {
		ins = []int{200, 2120}
	}
	for i, in := range ins {
		c := b.tiledCaseTo(backend.BF16, 0, in, slicedOuts, slicedGated)
		for j, t := range slicedTiles {
			c.sliced = t
			rows := []int{tiledRows, 33, 64, 48, 17, 96, 128}[(i+j)%7]
			gated := t.width >= 64
			switch {
			case !d.brief:
				c.three(TiledForm{}, rows)
				c.prompt(rows)
				if gated {
					c.gated(TiledForm{}, rows)
					c.gatedPrompt(rows)
				}
				c.blocks = 1 - c.blocks
			// One launch, by one cluster or as many as there are tiles.
			case (i+j/2)%2 == 0 || !gated:
				c.blocks = j % 2
				c.three(TiledForm{}, []int{t.rows + 2, 40}[(i+j)%2])
			default:
				c.blocks = j % 2
				c.gated(TiledForm{}, []int{t.rows + 2, 40}[(i+j)%2])
			}
			if d.brief && j%3 == i {
				c.prompt(24 + 8*i)
				c.gatedPrompt(24 + 8*i)
			}
		}
	}
	return b.close()
}

// slicesOf is a tile of gemm_hopper.cu for the inputs, by one chain or two.
func (c *tiledCase) slicesOf() gemmTile {
	if c.in >= splitInputs {
		return hopperSplit
	}
	return hopperNarrow
}

// prompt is a launch of one to three weights by gemm_hopper.cu, and by the tile.
func (c *tiledCase) prompt(rows int) {
	w, by := c.w[:1+rows%3], c.slicesOf()
	var n []int
	for i := range w {
		n = append(n, rows*c.outs[i])
	}
	c.sameBy(fmt.Sprintf("%s, %v", by.name, c.sliced), rows, n, func(way int, dst []Target) {
		c.d.Tuning = Tuning{sliced: c.sliced, blocks: c.blocks}
		var parts []gemmPart
		for i, l := range w {
			dst[i].Add = rows%2 == 0
			parts = append(parts, gemmPart{dst: dst[i], w: l.Weight.Raw, bias: l.Bias, out: l.Weight.Out})
		}
		if way == 0 {
			c.d.gemm(by, c.x, parts, c.in, rows)
		} else {
			c.enqueue(by, dst, w, false, rows)
		}
	})
}

// gatedPrompt is that of gate and up, which go by one chain.
func (c *tiledCase) gatedPrompt(rows int) {
	if c.sliced.width < 64 {
		return
	}
	c.sameBy(fmt.Sprintf("gated, %v", c.sliced), rows, []int{rows * c.gatedTo}, func(way int, dst []Target) {
		c.d.Tuning = Tuning{sliced: c.sliced, blocks: c.blocks}
		if way == 0 {
			half := func(l Linear) gemmPart { return gemmPart{w: l.Weight.Raw, bias: l.Bias, out: l.Weight.Out} }
			c.d.gemmGated(hopperNarrow, dst[0], c.x, half(c.halves[0]), half(c.halves[1]), c.in, rows)
		} else {
			c.enqueue(hopperNarrow, dst, c.halves[:], true, rows)
		}
	})
}

// enqueue makes a projection by the tile, with the slices of by.
func (c *tiledCase) enqueue(by gemmTile, dst []Target, w []Linear, gated bool, rows int) {
	p := projectionOf(dst, w, gated)
	if t, ok := c.d.slicedTile(&p, rows); ok {
		c.d.enqueueSliced(t, &p, c.x, rows, by.split)
	} else if c.err == nil {
		c.err = fmt.Errorf("no tile %v for %d inputs and %d outputs", c.sliced, c.in, p.out)
	}
}
