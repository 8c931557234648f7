package kernels

import "unsafe"

// Many rows on the matrix unit. A block of weights, manySteps steps of a
// chunk's outputs, is copied into tiles that lie one after the other, and meets all
// rows before the next block is touched: in L1 lie the tiles of 32 outputs, in L2
// the rest of the block, the same steps of the activations, and the sums.
//
// Two tiles of sums, one of weights and one of activations hold values at any
// time. On a core whose other thread uses the unit too, registers to rename
// tiles are scarce: loads and multiplies of a step of 32 × 32 sums, which takes
// all eight tiles, then wait for each other (40 to 55 ns a multiply, of 8 alone),
// those of 32 × 16 sums hardly (16 to 28 ns); where the core is free, both take 8 to 12.
const (
	// manyFrom is the rows from which copying the weights is repaid: 80 rows of
	// 0.6b take 1.35 times as long as by tilesNarrow, 128 as long, 192 0.88.
	manyFrom = 160
	// manySteps is the steps of a block: 32 KB of weights of 32 outputs.
	manySteps = 16
	// manyRows bounds the rows that a block of weights meets, and with them the
	// sums in L2.
	manyRows = 512
)

// manyCall is what tilesMany works through. Offsets are in bytes, and named in
// project_many_amx_amd64.s.
type manyCall struct {
	cfg           *tileConfig
	a             unsafe.Pointer // [2 blocks of 16 outputs][steps] tiles, the second block asecond further
	asecond       int
	b             unsafe.Pointer
	bstride       int
	bstep, bgroup int // to the next step; from the end of a group's steps to the next group
	c             unsafe.Pointer
	csecond       int // sums of the second block; groups lie one after the other
	steps, groups int
	resume        int            // 1: sums go on from memory
	ahead         unsafe.Pointer // rows of weights that are needed next, arow apart
	arow, arows   int
}

//go:noescape
func tilesMany(t *manyCall)

//go:noescape
func tileGather(dst, a *byte, stride, steps int)

// many multiplies all rows with outs outputs, a multiple of 32, into y.
func (amxProjector) many(y []float32, ldy int, a []byte, stride, outs int, p *Packed, s *Scratch) {
	const tile = tileSpan * tileSpan // values of a tile of sums
	steps := p.in / tileStep
	most := (min(p.Rows, manyRows) + tileSpan - 1) / tileSpan
	c := Grown(&s.project, outs/tileSpan*tile*most+outs*manySteps*tileStep/2)
	c, weights := c[:outs/tileSpan*tile*most], c[outs/tileSpan*tile*most:]
	tiles := unsafe.Slice((*byte)(unsafe.Pointer(&weights[0])), 4*len(weights))
	for r0 := 0; r0 < p.Rows; r0 += manyRows {
		rows := min(manyRows, p.Rows-r0)
		groups, last := rows/tileSpan, rows%tileSpan
		all := (rows + tileSpan - 1) / tileSpan
		for k := 0; k < steps; k += manySteps {
			n := min(manySteps, steps-k)
			for o := 0; o < outs; o += tileSpan {
				tileGather(&tiles[o*n*64], &a[o*stride+64*k], stride, n)
			}
			next := k + manySteps // steps that are copied after these
			if next >= steps {
				next = 0
			}
			for o := 0; o < outs; o += 2 * tileSpan {
				t := manyCall{
					a: unsafe.Pointer(&tiles[o*n*64]), asecond: n * tileSpan * 64, steps: n, csecond: 4 * tile * all,
					ahead: unsafe.Pointer(&a[o*stride+64*next]), arow: stride, arows: 2 * tileSpan,
				}
				if k > 0 {
					t.resume = 1
				}
				part := func(g, columns, groups int) {
					cfg := tileConfig{palette: 1}
					cfg.many(columns)
					t.cfg, t.groups = &cfg, groups
					t.b, t.bstride, t.bstep = unsafe.Pointer(&p.b16[(r0+g*tileSpan)*p.in+k*tileStep*columns]), 4*columns, 64*columns
					t.bgroup = (steps - n) * 64 * columns
					t.c = unsafe.Pointer(&c[(o/tileSpan*all+g)*tile])
					tilesMany(&t)
				}
				if groups > 0 {
					part(0, tileSpan, groups)
				}
				if last > 0 {
					part(groups, last, 1)
				}
			}
		}
		for g := range all {
			n := min(tileSpan, rows-g*tileSpan)
			for o := 0; o < outs; o += tileSpan {
				tileTranspose(&y[(r0+g*tileSpan)*ldy+o], 4*ldy, &c[(o/tileSpan*all+g)*tile], 4*tileSpan, tileSpan, n)
			}
		}
	}
}

// many sets the shapes of tilesMany: C tiles 0 and 1 and B tile 2 of n columns,
// A tile 3.
func (c *tileConfig) many(n int) {
	for t := range 4 {
		c.rows[t], c.bytes[t] = tileSpan, uint16(4*n)
	}
	c.bytes[3] = 64
}
