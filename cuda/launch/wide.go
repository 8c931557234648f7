package launch

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"strings"

	"windrow/cuda/driver"
)

// wideForm is how a launch of kernels/wide.cuh cuts outputs and inputs.
type wideForm struct {
	wide  int  // warpgroups of a block, with 64 outputs each
	parts int  // of the inputs: 1, 2 or 4
	pair  bool // blocks of 256 rows, of which two share the inputs: of two warpgroups and one part
}

// String gives the outputs of a block, and the parts.
func (f wideForm) String() string {
	if f.pair {
		return fmt.Sprintf("wide %d, pairs", 64*f.wide)
	}
	return fmt.Sprintf("wide %d/%d", 64*f.wide, f.parts)
}

// widePair is the form of pairs.
var widePair = wideForm{wide: 2, parts: 1, pair: true}

// wideShape is how a launch of kernels/wide.cuh is cut.
type wideShape struct {
	wideForm
	tiles  int // of 8 rows, of a block
	grid   dim // tiles of outputs, parts, tiles of rows
	stages int // of the ring of inputs, 128 each
	shared int
}

const (
	mostWide       = 3 // warpgroups
	mostWideTiles  = 16
	mostWideParts  = 4
	mostWideStages = 8
	pairTiles      = 32
	// wideCounters is how many tiles may have parts.
	wideCounters = 1 << 10
)

// threads is how many a block has: a warp copies what the others multiply, in pairs one of
// a warpgroup.
func (f wideForm) threads() int {
	if f.pair {
		return 128*f.wide + 128
	}
	return 128*f.wide + 32
}

// slots is how many a warp's ring of weights has, of 128 inputs each.
func (f wideForm) slots() int {
	if f.pair {
		return 3
	}
	return 4
}

func (s wideShape) blocks() int { return s.grid.x * s.grid.y * s.grid.z }

// tiles is how many tiles of 8 rows a block takes of that many.
func (f wideForm) tiles(rows int) int {
	switch {
	case f.pair:
		return pairTiles
	case rows <= 64:
		return mostWideTiles / 2
	}
	return mostWideTiles
}

// wideShapeOf cuts a projection to total strips of 16 outputs, and to so many tiles of 8
// rows a block; ok reports whether a block of that form has room. Parts wait for each
// other: they are for launches whose blocks are all at work at once.
func (d *Device) wideShapeOf(f wideForm, w format, total, rows, in, tiles int) (s wideShape, ok bool) {
	s = wideShape{wideForm: f, tiles: tiles}
	s.grid = dim{Ceil(total, 4*f.wide), f.parts, Ceil(rows, 8*s.tiles)}
	if f.pair {
		s.grid.x += s.grid.x % 2
	}
	stage, sums := 2*128*8*s.tiles, 4*f.wide*8*s.tiles*20*4
	weights := 4 * f.wide * f.slots() * (128 / w.inputs) * w.granule
	fixed := 2<<10 + weights // to begin on 1024 bytes, and barriers
	s.stages = min((d.Info.SharedPerBlock-reservedShared-fixed)/stage, cmp.Or(d.Tuning.stages, mostWideStages))
	s.shared = s.stages*stage + fixed
	ok = s.stages >= 2 && s.stages*stage+weights >= sums && (w.pairs || !f.pair)
	if f.parts > 1 {
		ok = ok && f.parts <= Ceil(in, 128) && s.blocks() <= d.Info.SMs && s.grid.x*s.grid.z <= wideCounters
	}
	return s, ok
}

// time is how many microseconds a launch should take on an H100 of so many
// multiprocessors: waves over the device, each of one block's stages, and the
// exchange of parts. The numbers are fitted to 4-bit weights in groups of 64. That of
// pairs is what a stage of two warpgroups and 256 rows would take at the rate of three and
// 128, less what whole prompts gain by it, whose steps are at the limit of power.
func (s wideShape) time(sms, in int) float64 {
	stages, wide := Ceil(Ceil(in, 128), s.parts), float64(s.wide)
	step, edge := 0.18+0.235*wide, 2.7+0.57*wide
	switch s.tiles {
	case 8:
		step, edge = 0.2+0.155*wide, 2.2
	case pairTiles:
		step, edge = 1.11, 6
	}
	if s.parts > 1 {
		given := float64(s.blocks()*64*s.wide*8*s.tiles*4) * float64(s.parts-1) / float64(s.parts)
		edge += 1.4 + 0.57e-6*given
	}
	return float64(Ceil(s.blocks(), sms)) * (float64(stages)*step + edge)
}

// wideShape chooses how kernels/wide.cuh makes a projection to total strips. The order
// of sums depends on the parts of the inputs.
func (d *Device) wideShape(w format, total int, rows Rows, in int) (best wideShape, ok bool) {
	if f := d.Tuning.wide; f.wide != 0 {
		return d.wideShapeOf(f, w, total, rows.Count, in, f.tiles(rows.Count))
	}
	parts := 0
	if order := rows.ordered(); order != rows.Count {
		if best, ok = d.fastestWide(w, total, order, in, 0); !ok {
			return best, false
		}
		parts = best.parts // of fewer rows they take fewer blocks
	}
	return d.fastestWide(w, total, rows.Count, in, parts)
}

// pairRows is from where on pairs are considered. Prompts of 1,024 rows of the 8B model are
// as fast either way, fewer were not measured.
const pairRows = 1024

// fastestWide is the shape that should take the least time: of all, or of those with so
// many parts. Where they may not be more, blocks of fewer rows fill the device, too.
func (d *Device) fastestWide(w format, total, rows, in, only int) (best wideShape, ok bool) {
	least := math.Inf(1)
	if rows > pairRows {
		if best, ok = d.wideShapeOf(widePair, w, total, rows, in, pairTiles); ok {
			least = best.time(d.Info.SMs, in)
		}
	}
	for wide := 1; wide <= mostWide; wide++ {
		for parts := 1; parts <= mostWideParts; parts *= 2 {
			if only != 0 && parts != only {
				continue
			}
			f := wideForm{wide: wide, parts: parts}
			for tiles := f.tiles(rows); tiles >= mostWideTiles/2; tiles /= 2 {
				s, fits := d.wideShapeOf(f, w, total, rows, in, tiles)
				if time := s.time(d.Info.SMs, in); fits && time < least {
					best, least, ok = s, time, true
				}
				if only == 0 {
					break
				}
			}
		}
	}
	return best, ok
}

// wideKernel is the kernel of a shape.
func wideKernel(f format, s wideShape) kernel {
	file := strings.Replace(f.file, "stream_", "wide_", 1)
	if s.pair {
		return kernel{file + "_hopper", file + "_pair", s.shared}
	}
	return kernel{file + "_hopper", fmt.Sprintf("%s_%d", file, s.tiles), s.shared}
}

// wideParts is the memory that the sums of parts go through.
type wideParts struct {
	counters, sums driver.Ptr
}

// prepareWide makes room for the sums of parts: of as many blocks as are at work
// at once.
func (d *Device) prepareWide() error {
	p := &d.prefill.parts
	if p.counters != 0 {
		return nil
	}
	var err error
	if p.sums != 0 {
		d.Context.Free(p.sums)
	}
	if p.sums, err = d.Context.Alloc(d.Info.SMs * mostWide * 64 * mostWideTiles * 8 * 4); err != nil {
		return err
	}
	counters, err := d.Context.Alloc(4 * wideCounters)
	if err != nil {
		return err
	}
	p.counters = counters
	return d.Context.Upload(counters, make([]byte, 4*wideCounters))
}

func (p *wideParts) free(ctx *driver.Context) {
	for _, m := range []driver.Ptr{p.counters, p.sums} {
		if m != 0 {
			ctx.Free(m)
		}
	}
}

// wide enqueues a projection by kernels/wide.cuh; PrepareGEMM has made room.
func (d *Device) wide(dst []Target, x driver.Ptr, w []Linear, gated bool, rows Rows) {
	if d.err != nil {
		return
	}
	p := projectionOf(dst, w, gated)
	if d.err = p.err; d.err != nil {
		return
	}
	s, ok := d.wideShape(p.format, p.total, rows, p.in)
	if !ok {
		d.err = fmt.Errorf("project: %d rows of %d inputs to %d strips by %v", rows.Count, p.in, p.total, d.Tuning.wide)
		return
	}
	if s.parts > 1 && d.prefill.parts.counters == 0 {
		d.err = errUnprepared
		return
	}
	at := d.mapOf(mapKey{x, rows.Count, p.in, min(mapRows, 8*s.tiles)})
	args := append(p.args(at, rows.Count, s.stages, bits.Len(uint(s.parts))-1), uint64(d.prefill.parts.sums), uint64(d.prefill.parts.counters))
	d.launch(wideKernel(p.format, s), s.grid, s.threads(), args...)
}
