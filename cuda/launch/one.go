package launch

import (
	"cmp"
	"strings"
)

// oneShape is how a launch of kernels/one.cuh is cut.
type oneShape struct {
	strips int // of a block
	more   int // blocks, the first ones, that have a strip more, or a gate's and an up's
	blocks int
	pass   int // strips whose sums have room
	stages int // of a warp's ring, a granule each
	shared int
}

const (
	oneWarps      = 16
	oneMostPass   = 16
	oneMostStages = 8
)

// oneShapeOf cuts a projection of one row to total strips of 16 outputs; ok tells
// whether a block has room.
func (d *Device) oneShapeOf(f format, total, in int, gated bool) (s oneShape, ok bool) {
	each := 1
	if gated {
		each = 2
	}
	places := min(total/each, cmp.Or(d.Tuning.blocks, 2*d.Info.SMs))
	most := Ceil(total/each, places)
	s.blocks = Ceil(total/each, most)
	if 10*s.blocks < 9*places {
		s.blocks = places // not all alike, but more of them (BenchmarkHybridForms)
	}
	s.strips, s.more = dealt(total, each, s.blocks)
	s.pass = min(most*each, oneMostPass)
	units := Ceil(in, f.inputs) * f.inputs / 64
	const folds = 4 // of a unit, at most
	fixed := units*(128+folds*4) + oneWarps*(oneMostStages*8+s.pass*16*4)
	stage := oneWarps * f.granule
	// Two blocks share a multiprocessor, so there are twice as many: with half of the
	// warps decoding is not as fast as an H200's memory. A third of its shared memory each
	// is better than half (docs/performance.md), but where that is no ring at all.
	stages := func(limit int) int {
		limit = min(limit, d.Info.SharedPerBlock-reservedShared)
		return min((limit-fixed)/stage, cmp.Or(d.Tuning.stages, oneMostStages))
	}
	s.stages = stages(cmp.Or(d.Tuning.shared, d.Info.SharedPerBlock/3-2*reservedShared))
	if s.stages < 2 && d.Tuning.shared == 0 {
		s.stages = stages(d.Info.SharedPerBlock/2 - 2*reservedShared)
	}
	s.shared = s.stages*stage + fixed
	return s, s.stages >= 2
}

// dealt is how many of total strips, which go each together, one of so many blocks or clusters has,
// and how many of these, the first ones, have as many more as go together.
func dealt(total, each, blocks int) (strips, more int) {
	return total / each / blocks * each, total / each % blocks
}

// one chooses how kernels/one.cuh makes a projection of one row by 4-bit weights; ok is
// false where kernels/stream.cuh has to. Weights of more bits take less to decode a byte.
func (d *Device) one(f format, total, rows, in int, gated bool) (s oneShape, ok bool) {
	if rows != 1 || !f.nibbles() || d.Tuning.Stream || d.streamWarps(f) != oneWarps || !d.takesTiled() {
		return s, false
	}
	return d.oneShapeOf(f, total, in, gated)
}

// nibbles reports whether weights have 4 bits.
func (f format) nibbles() bool { return f.inputs == 128 }

// oneKernel is the kernel of a shape.
func oneKernel(f format, s oneShape) kernel {
	file := strings.Replace(f.file, "stream_", "one_", 1)
	return kernel{file + "_hopper", file, s.shared}
}
