package kernels

import "unsafe"

const (
	// dotNear is how many bytes of activations lie in L1 beside the weights that they meet,
	// dotParts the most parts of rows that they are.
	dotNear, dotParts = 16 << 10, 4
	// dotNearAhead is how many bytes ahead of their use weights are fetched there.
	dotNearAhead = 8 << 10
)

// nearCall is what dotsNear and avx2Near work through: blocks of four outputs that follow
// each other, each by all rows in parts. Offsets are in bytes, and named in
// project_near_amd64.h.
type nearCall struct {
	w      unsafe.Pointer
	stride int // from a row of weights to the next
	ahead  int // from a block to what is prefetched
	lines  int // fours of cache lines of that, which each part asks for
	y      unsafe.Pointer
	ldy    int
	steps  int // of 32 elements
	blocks int
	parts  [dotParts + 1]int // rows of each; 0 ends them
	x      [dotParts * dotRows]unsafe.Pointer
}

// nearRows are packed rows of so many bytes, all of them or those of a list, that lie apart
// bytes apart.
type nearRows struct {
	x     unsafe.Pointer
	bytes int
	apart int
	rows  int
	list  []int
}

// near multiplies several short rows by blocks of four outputs of bf16 that follow each other:
// all rows meet a block before the next one. So weights come to L1 once, at an even pace, and
// the sums of a row's four outputs are stored together. One row is quicker in streams. Rows of
// weights, of in elements, lie stride bytes apart; next is where the weights lie that are
// multiplied next, nil: it is not known. lanes is 8 for activations in f32, 0 for bf16.
//
// Medians of one thread of a Zen 5 with 64 outputs of 256 elements, which come from L3 but
// lie across cache lines; GFLOP/s of activations in bf16, peak 533:
//
//	rows                               4    8   16   24
//	part by part, in streams         183  229  281  296
//	block by block, 4 KiB ahead      219  364  407  420
//	8 KiB ahead (kept)               245  393  421  431
//
// The same on another day, of 256 and of 128 elements, where a part's sums are added up
// before and beside the next part's products:
//
//	rows                               4    6   16   24
//	256, before                      293  366  431  437
//	256, beside (kept)               314  395  443  455
//	128, before                      256  312  360  368
//	128, beside (kept)               260  343  387  401
//
// The same with activations in f32, in 8 lanes, peak 133:
//
//	rows                               3    8   12   24
//	tile by tile                      96   94  109  123
//	block by block                   111  119  124  127
func near(lanes int, y []float32, ldy int, x nearRows, a []byte, in, stride, blocks int, next unsafe.Pointer) {
	d := nearCall{stride: stride, ldy: 4 * ldy, steps: in / dotStep}
	most := min(dotNear/x.bytes, dotParts*dotRows)
	groups := (x.rows + most - 1) / most
	for g := range groups {
		r0, r1 := g*x.rows/groups, (g+1)*x.rows/groups
		parts := d.cut(r1-r0, lanes)
		d.w, d.blocks = unsafe.Pointer(&a[0]), blocks
		for r := r0; r < r1; r++ {
			d.x[r-r0] = unsafe.Add(x.x, of(x.list, r)*x.apart)
		}
		d.y = unsafe.Pointer(&y[r0*ldy])
		if g > 0 { // the weights are in L2
			d.lines = 0
			d.run(lanes)
			continue
		}
		d.ahead, d.lines = dotNearAhead, (in/dotStep+parts-1)/parts
		if last := dotNearAhead / (8 * in); next != nil && last < blocks {
			// What the last blocks ask for are the first ones of what comes next.
			d.blocks = blocks - last
			d.run(lanes)
			d.w, d.y, d.blocks = unsafe.Pointer(&a[4*(blocks-last)*stride]), unsafe.Pointer(&y[4*(blocks-last)]), last
			d.ahead = int(uintptr(next) - uintptr(d.w))
		}
		d.run(lanes)
	}
}

// cut divides rows among parts, evenly: for dotsNear they differ by one row at most. In 8 lanes
// parts of four rows have 8 sums at work, just as many as multiply-adds are on their way, and
// those of six or three have 12: one part has three rows there, where the others are larger for
// it and not more.
func (d *nearCall) cut(rows, lanes int) (parts int) {
	parts = (rows + dotRows - 1) / dotRows
	for i := range parts {
		d.parts[i] = (i+1)*rows/parts - i*rows/parts
	}
	d.parts[parts] = 0
	if less := parts*dotRows - rows; lanes == 8 && parts > 1 && less >= dotRows/2 {
		others := parts - 1
		for i := range others {
			d.parts[i] = dotRows - (less-dotRows/2+i)/others
		}
		d.parts[others] = dotRows / 2
	}
	return parts
}

// run calls the kernel: statically, so that d stays on the stack.
func (d *nearCall) run(lanes int) {
	if lanes == 8 {
		avx2Near(d)
	} else {
		dotsNear(d)
	}
}

// of is the row that stands at a place of a list; nil: all of them.
func of(list []int, i int) int {
	if list != nil {
		return list[i]
	}
	return i
}

// after is where the weights lie that a worker multiplies next; nil: it is not known.
func after(w *Weight, o0, o1 int, s *Scratch) unsafe.Pointer {
	switch {
	case s.After != nil:
		if s.After.dt == w.dt && s.After.in == w.in && s.AfterFrom < s.After.out {
			return unsafe.Pointer(&s.After.data[s.AfterFrom*2*w.in])
		}
	case s.Next > 0 && o0+s.Next < w.out && s.Next != o1-o0:
		return unsafe.Pointer(&w.data[(o0+s.Next)*2*w.in])
	}
	return nil
}
