package launch

import (
	"cmp"
	"fmt"
	"strings"
)

// Sizes that kernels/few.cuh has, too.
const (
	fewRowsAtMost   = 16
	fewWorkers      = 16
	fewFinishers    = 4
	fewPlaces       = 2
	fewMostStages   = 8
	fewStages       = 2       // as measured: docs/adr/0049-rings-are-short.md
	fewChunk        = 3       // granules of a copy: docs/adr/0054-what-is-there-says-so.md
	fewLongInputs   = 8 << 10 // inputs up to which a block takes all that it has room for
	fewLeastCluster = 2       // blocks of a cluster, at least, of more
	fewMostCluster  = 8       // at most
)

// fewLines is how a launch of kernels/few.cuh is cut.
type fewLines struct {
	tiles    int // of 8 rows
	cluster  int // blocks that share the inputs of rows
	clusters int
	strips   int // of a cluster
	more     int // clusters, the first ones, that have a strip more, or a gate's and an up's
	chunk    int // granules of a strip that a warp copies at a time
	stages   int // of its ring, as many granules each
	shared   int
}

// few chooses how kernels/few.cuh makes a projection of 2 to 16 rows by 4-bit weights that round, in
// the smallest clusters whose blocks have room for the rows; ok is false where none have.
func (d *Device) few(f format, total, rows, in int, gated bool) (s fewLines, ok bool) {
	if rows < 2 || !d.takesFew(f, rows, in) || d.Tuning.cluster == 0 && !d.fewPays(total, rows, in) {
		return s, false
	}
	s.tiles = Ceil(rows, 8)
	for s.chunk = cmp.Or(d.Tuning.chunk, fewChunk); s.chunk > 0 && !d.fewFits(&s, f, rows, in); s.chunk-- {
	}
	if s.chunk == 0 {
		return s, false
	}
	each := 1
	if gated {
		each = 2
	}
	s.clusters = min(total/each, cmp.Or(d.Tuning.blocks, d.mostClusters(fewRowsKernel(f, s), s.cluster, 32*(fewWorkers+fewFinishers))))
	if s.clusters == 0 || s.cluster > 4 && d.activeClusters(fewRowsKernel(f, s), s.cluster, 32*(fewWorkers+fewFinishers)) == 0 { // not every device has room for them
		return s, false
	}
	s.clusters = asFew(total/each, s.clusters)
	s.strips, s.more = dealt(total, each, s.clusters)
	return s, true
}

// fewFits chooses the smallest clusters whose blocks have room for the rows, and two stages of so many granules.
func (d *Device) fewFits(s *fewLines, f format, rows, in int) bool {
	limit := min(cmp.Or(d.Tuning.shared, d.Info.SharedPerBlock), d.Info.SharedPerBlock) - reservedShared
	least := 1
	if in > fewLongInputs {
		least = fewLeastCluster
	}
	for s.cluster = cmp.Or(d.Tuning.cluster, least); s.cluster <= fewMostCluster; s.cluster *= 2 {
		part := Ceil(in/64, s.cluster) * 128 // bytes of a row
		if s.cluster > 1 {
			part += 128 // blocks have not all as many
		}
		fixed := fewPlaces*fewWorkers*s.tiles*32*4*4 + rows*(part+16) + 8*(fewPlaces+s.cluster*fewPlaces+fewWorkers+fewWorkers*fewMostStages)
		stage := fewWorkers * s.chunk * f.granule
		s.stages = min((limit-fixed)/stage, cmp.Or(d.Tuning.stages, fewStages), fewMostStages)
		s.shared = s.stages*stage + fixed
		if s.stages >= 2 {
			return true
		}
	}
	return false
}

// takesFew reports whether kernels/few.cuh and held.cuh are for so many rows by such weights.
func (d *Device) takesFew(f format, rows, in int) bool {
	return rows <= fewRowsAtMost && f.nibbles() && f.rounds && in%f.inputs == 0 && !d.Tuning.Stream && d.Tuning.Tiled.Tiles == 0 &&
		!d.Tuning.noFew && d.streamWarps(f) == fewWorkers && d.takesTiled()
}

// asFew is how many of so many blocks are enough that none has more items. The norm ahead runs on the
// multiprocessors that are left: beside it no block of few.cuh or held.cuh fits, so that one there would be
// the last to begin.
func asFew(items, blocks int) int { return Ceil(items, Ceil(items, blocks)) }

// fewPays reports whether kernels/few.cuh is faster than what else there is, as measured on an H200
// (docs/adr/0046-few-rows-stay-in-shared-memory.md): where a block has one strip, or many, or there are few
// inputs, or so many that rows would fill the rings of other kernels. Of more than 8 rows
// (docs/adr/0049-rings-are-short.md) tiled.cuh takes what has the most outputs.
func (d *Device) fewPays(total, rows, in int) bool {
	each := float64(total) / float64(d.Info.SMs) // strips of a block
	if rows > 8 {
		return total < 1200 && (each <= 1 || in <= 2048 || in > 4096 && each >= 3 || in > fewLongInputs && each >= 2.25)
	}
	return each <= 1 || each >= 3.5 || in <= 2048 || in > 4096 && each >= 2.25
}

// fewRowsKernel is the kernel of a shape.
func fewRowsKernel(f format, s fewLines) kernel {
	file := strings.Replace(f.file, "stream_", "few_", 1)
	name := fmt.Sprintf("%s_%d", file, s.tiles)
	if s.cluster > 1 {
		name += fmt.Sprintf("_c%d", s.cluster)
	}
	return kernel{file + "_hopper", name, s.shared}
}
