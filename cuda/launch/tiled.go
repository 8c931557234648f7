package launch

import (
	"cmp"
	"fmt"
	"strings"
)

// TiledForm is how the blocks of kernels/tiled.cuh stand: teams of wide
// warpgroups, of which each takes 64 outputs and all rows of the tile.
type TiledForm struct {
	Tiles   int // of 8 rows
	Teams   int // of a block
	Wide    int
	Cluster int // blocks that share a tile: all their teams take the slices of the inputs in turns
}

// String gives the rows and outputs of a tile, the teams of a block and, where
// there are several, the blocks of a cluster.
func (t TiledForm) String() string {
	s := fmt.Sprintf("%dx%d/%d", 8*t.Tiles, 64*t.Wide, t.Teams)
	if t.Cluster > 1 {
		s += fmt.Sprintf("x%d", t.Cluster)
	}
	return s
}

// threads is how many a block has: a warpgroup copies what the others multiply.
func (t TiledForm) threads() int { return 128 * (1 + t.Teams*t.Wide) }

// mostThreads is how many the kernel's registers allow.
func (t TiledForm) mostThreads() int {
	switch {
	case t.Tiles == 8 && t.Teams == 2:
		return 384
	case t.Teams == 1 && t.Tiles > 2:
		return 512
	case t.Tiles <= 2:
		return 768
	}
	return 640
}

// tiledShape is how a launch of kernels/tiled.cuh is cut.
type tiledShape struct {
	TiledForm
	slices int // of rows
	blocks int
	stages int // of a team's ring, of 128 inputs
	shared int
}

const leastTiledStages = 2

// apart reports whether sums lie in shared memory, for want of registers.
func (t TiledForm) apart() bool { return t.Tiles == 16 }

// fits reports whether there is a kernel of the form: of one tile of rows, and of 16, for
// weights alone that are rounded.
func (t TiledForm) fits(f format) bool { return f.rounds || t.Tiles != 1 && t.Tiles != 16 }

// weightStages are those of a warp's ring.
func (t TiledForm) weightStages(f format) int {
	switch {
	case t.apart():
		return 2
	case f.rounds && t.Tiles <= 2:
		return 3
	}
	return 4
}

// mostStages are those of a team's ring.
func (t TiledForm) mostStages(f format) int {
	if f.rounds && t.Tiles <= 4 {
		return 4
	}
	return 8
}

// tiledShapeOf cuts a projection to total strips of 16 outputs; ok tells
// whether a block of that form has room.
func (d *Device) tiledShapeOf(t TiledForm, f format, total, rows int) (s tiledShape, ok bool) {
	s = tiledShape{TiledForm: t, slices: Ceil(rows, 8*t.Tiles)}
	s.blocks = Ceil(total, 4*t.Wide) * s.slices * t.Cluster
	row := 2 * 128 // bytes of a stage
	if !f.rounds {
		row += 2 * 2 * 4 // sums of inputs
	}
	stage := t.Teams * 8 * t.Tiles * row
	strips := t.Teams * t.Wide * 4 // with a warp for each
	fixed := 2 * 1024              // to begin on 1024 bytes, and barriers
	fixed += strips * t.weightStages(f) * (128 / f.inputs) * f.granule
	switch {
	case t.Teams*t.Cluster > 1:
		fixed += 1024 + strips*t.Tiles*4*128 // barriers and sums of an exchange
	case t.apart():
		fixed += strips * t.Tiles * 4 * 128
	}
	limit := min(cmp.Or(d.Tuning.shared, d.Info.SharedPerBlock), d.Info.SharedPerBlock) - reservedShared
	s.stages = min((limit-fixed)/stage, cmp.Or(d.Tuning.stages, t.mostStages(f)))
	s.shared = s.stages*stage + fixed
	return s, t.fits(f) && s.stages >= leastTiledStages && t.threads() <= t.mostThreads()
}

// tiledKernel is the kernel of a shape.
func tiledKernel(f format, s tiledShape) kernel {
	file := strings.Replace(f.file, "stream_", "tiled_", 1)
	name := fmt.Sprintf("%s_%d_%d", file, s.Tiles, s.Teams)
	if s.Cluster > 1 {
		name += fmt.Sprintf("_c%d", s.Cluster)
	}
	return kernel{file + "_hopper", name, s.shared}
}

// tiledFrom says from how many rows and strips of outputs on which form was the fastest on an
// H100, of less than manyRows; the first line that fits holds. Where none does, kernels/stream.cuh
// was faster.
var tiledFrom = []struct {
	rows, strips int
	form         TiledForm
}{
	{24, 1536, TiledForm{4, 1, 3, 1}},
	{24, 768, TiledForm{4, 1, 2, 1}}, // as on an H200 (BenchmarkHybridForms)
	{24, 384, TiledForm{4, 4, 1, 1}},
	{24, 256, TiledForm{4, 1, 3, 4}},
	{9, 1200, TiledForm{2, 1, 3, 1}}, // or wider
	{2, 1344, TiledForm{1, 1, 3, 1}}, // of weights that are rounded, where all blocks are at work at once
}

// manyRows is from how many rows on forms are chosen by tiledTimes.
const manyRows = 48

// tiledTime is how long a wave of blocks takes, in µs.
type tiledTime struct {
	start  float64 // whatever the inputs are
	inputs float64 // for 2,048 of them
	full   float64 // more where all multiprocessors have a block
}

// tiledTimes are those of an H200: fits to what BenchmarkTiledForms and BenchmarkHybridForms
// measure of 48 to 256 rows, with errors of 2 to 8 % in the mean.
var tiledTimes = []struct {
	form            TiledForm
	rounded, scaled tiledTime // weights that are rounded, and others
}{
	{TiledForm{4, 1, 2, 1}, tiledTime{4.5, 5.8, 0.1}, tiledTime{3.6, 12.5, 1.4}},
	{TiledForm{4, 1, 3, 1}, tiledTime{4.8, 7.3, 1.0}, tiledTime{4.5, 15.7, 1.3}},
	{TiledForm{8, 1, 2, 1}, tiledTime{5.8, 6.8, 0.9}, tiledTime{6.3, 15.8, 1.2}},
	{TiledForm{8, 1, 3, 1}, tiledTime{6.5, 8.9, 1.8}, tiledTime{7.9, 20.3, 1.4}},
	{TiledForm{8, 2, 1, 1}, tiledTime{4.7, 4.0, 3.6}, tiledTime{5.6, 8.1, 2.2}},
	{TiledForm{4, 4, 1, 1}, tiledTime{0.5, 2.9, 6.9}, tiledTime{2.7, 5.3, 3.5}},
	{TiledForm{4, 1, 3, 4}, tiledTime{-1.7, 2.2, 9.0}, tiledTime{-3.5, 4.1, 11.3}},
	{TiledForm{16, 1, 2, 1}, tiledTime{18.2, 9.0, 1.3}, tiledTime{}},
	{TiledForm{16, 1, 3, 1}, tiledTime{20.9, 14.1, 0.3}, tiledTime{}},
}

// of is how long so many blocks take.
func (t tiledTime) of(blocks, sms, in int) float64 {
	waves := float64(Ceil(blocks, sms))
	return waves*(t.start+t.inputs*float64(in)/2048) + t.full*float64(blocks)/float64(sms)
}

// tiled chooses how kernels/tiled.cuh makes a projection to total strips; ok is
// false where kernels/stream.cuh is faster, or the device not one for it.
func (d *Device) tiled(f format, total, rows, in int) (s tiledShape, ok bool) {
	if f == bf16Format || d.Tuning.Stream || !d.takesTiled() {
		return s, false
	}
	if d.Tuning.Tiled.Tiles != 0 {
		return d.tiledShapeOf(d.Tuning.Tiled, f, total, rows)
	}
	if rows >= manyRows {
		return d.tiledMany(f, total, rows, in)
	}
	for _, from := range tiledFrom {
		if rows < from.rows || total < from.strips || !from.form.fits(f) {
			continue
		}
		if from.form.Tiles == 2 {
			from.form.Wide = d.wideOf(total)
		}
		if s, ok = d.tiledShapeOf(from.form, f, total, rows); from.form.Tiles > 1 || s.blocks <= d.Info.SMs {
			return s, ok
		}
	}
	return tiledShape{}, false
}

// tiledMany chooses the form that should take the least time of many rows. Few strips of outputs
// are not for it: kernels/stream.cuh splits them further.
func (d *Device) tiledMany(f format, total, rows, in int) (best tiledShape, ok bool) {
	if total <= 64 || f.rounds && total <= d.Info.SMs && rows < 64 {
		return best, false
	}
	least := 0.0
	for _, t := range tiledTimes {
		time := t.scaled
		if f.rounds {
			time = t.rounded
		}
		s, fits := d.tiledShapeOf(t.form, f, total, rows)
		if !fits {
			continue
		}
		if takes := time.of(s.blocks, d.Info.SMs, in); !ok || takes < least {
			best, least, ok = s, takes, true
		}
	}
	return best, ok
}

// wideOf is how many warpgroups make total strips of 16 rows the soonest. A block takes
// the time of two of them, and one more for each that it has (BenchmarkHybridForms).
func (d *Device) wideOf(total int) (wide int) {
	for w, least := 3, 0; w <= 5; w++ {
		if time := Ceil(Ceil(total, 4*w), d.Info.SMs) * (2 + w); least == 0 || time < least {
			wide, least = w, time
		}
	}
	return wide
}

// takesTiled reports whether the device takes kernels/tiled.cuh: it needs what
// gemm_hopper.cu needs, and a driver that knows PTX 8.1.
func (d *Device) takesTiled() bool {
	if d.Info.DriverVersion == "12.0" {
		return false
	}
	if !d.prefill.tried {
		d.prefill.hopper = d.openHopper()
		d.prefill.tried = d.prefill.hopper != nil
	}
	return d.prefill.hopper != nil
}
