package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"windrow/backend"
	"windrow/cuda/driver"
)

// projectTimes holds the memory of benchProjections: weights are cut from one
// slab of noise, which is large against every L2.
type projectTimes struct {
	d        *device
	w        io.Writer
	slab     driver.Ptr
	at       int
	x, out   driver.Ptr
	shapes   []benchShape
	noise    int // bytes of the slab
	layers   int // of a step
	launches int // of a graph of one shape
	replays  int // of a graph
	variants []tuning
	prefill  bool // as prefill's projections
	err      error
}

const (
	benchPeak = 3.35e12 // bytes a second that shares are of: an H100's
	benchRows = 1024    // at most
)

// benchShape is projections that share a launch.
type benchShape struct {
	name  string
	out   []int
	in    int
	gated bool
}

// benchShapes are those of the 8B model; the head comes last.
var benchShapes = []benchShape{
	{"q k v", []int{4096, 1024, 1024}, 4096, false},
	{"o", []int{4096}, 4096, false},
	{"gate up", []int{12288, 12288}, 4096, true},
	{"down", []int{4096}, 12288, false},
	{"head", []int{151936}, 4096, false},
}

// benchProjections times decode projections at the 8B model's shapes, each as
// a graph of launches over different weights, by ring and blocks: microseconds
// a launch, and the share of 3.35 TB/s that the best of them reads weights at.
// Then all projections of a step of 36 layers. It takes 7 GB and some seconds.
func (d *device) benchProjections(w io.Writer) {
	b := &projectTimes{d: d, w: w, shapes: benchShapes, noise: 6 << 30, layers: 36, launches: 20, replays: 5, variants: []tuning{
		{}, {shared: 112 << 10}, {shared: 160 << 10}, {shared: 226 << 10}, {group: 2}, {group: 3}, {group: 6},
	}}
	b.run([]int{8, 16, 32, 64, 128})
}

// run times shapes and steps of that many rows; of formats besides the first
// three, only the second of them.
func (b *projectTimes) run(rowCounts []int) {
	defer b.close()
	b.open()
	formats := []struct {
		dt    backend.DType
		group int
	}{{backend.BF16, 0}, {backend.Affine4, 64}, {backend.Affine8, 64}, {backend.Q4_K, 0}, {backend.Q6_K, 0}, {backend.Q8_0, 0}}
	for i, f := range formats {
		for k, rows := range rowCounts {
			if i > 2 && k != 1 {
				continue
			}
			for j := range b.shapes {
				if j < len(b.shapes)-1 || f.dt == backend.BF16 || f.dt == backend.Q6_K {
					b.shape(f.dt, f.group, j, rows)
				}
			}
			b.step(f.dt, f.group, rows)
		}
	}
}

func (b *projectTimes) open() {
	b.slab = b.alloc(b.noise)
	in, out := 0, 0
	for _, s := range b.shapes {
		in, out = max(in, s.in), max(out, s.out[0])
	}
	b.x, b.out = b.alloc(benchRows*in*2), b.alloc(3*benchRows*out*4)
	r, data := rand.New(rand.NewPCG(1, 1)), make([]byte, min(b.noise, 16<<20))
	for i := 0; i < len(data); i += 8 {
		binary.LittleEndian.PutUint64(data[i:], r.Uint64()&0x3fff3fff3fff3fff) // under 2 as bf16 numbers
	}
	if b.err != nil {
		return
	}
	b.fill(data)
	normalsBF16(data, r, 1)
	for at, n := 0, benchRows*in*2; at < n; at += len(data) {
		b.err = errors.Join(b.err, b.d.ctx.Upload(b.x+driver.Ptr(at), data[:min(len(data), n-at)]))
	}
	b.err = errors.Join(b.err, b.d.stream.Synchronize())
}

// fill repeats data in the slab.
func (b *projectTimes) fill(data []byte) {
	if b.err == nil {
		b.err = b.d.ctx.Upload(b.slab, data)
	}
	for done := len(data); done < b.noise && b.err == nil; done *= 2 {
		b.err = b.d.stream.Copy(b.slab+driver.Ptr(done), b.slab, min(done, b.noise-done))
	}
}

// normalsBF16 fills data with normal numbers of that deviation, cut to bf16.
func normalsBF16(data []byte, r *rand.Rand, deviation float64) {
	for i := 0; i < len(data); i += 2 {
		binary.LittleEndian.PutUint16(data[i:], uint16(math.Float32bits(float32(deviation*r.NormFloat64()))>>16))
	}
}

func (b *projectTimes) alloc(n int) driver.Ptr {
	if b.err != nil {
		return 0
	}
	var p driver.Ptr
	p, b.err = b.d.ctx.Alloc(n)
	return p
}

func (b *projectTimes) close() {
	for _, p := range []driver.Ptr{b.slab, b.x, b.out} {
		if p != 0 {
			b.err = errors.Join(b.err, b.d.ctx.Free(p))
		}
	}
	b.d.tuning = tuning{}
	b.d.prefill.free(b.d.ctx) // tensor maps
	if b.err != nil {
		fmt.Fprintln(b.w, "projections:", b.err)
	}
}

// weight is a matrix of noise, and its bytes.
func (b *projectTimes) weight(dt backend.DType, group, out, in int) (*matrix, int) {
	m := &matrix{dt: dt, out: out, in: in, group: group}
	n := 2 * out * in
	if f, ok := formatOf(dt, group); ok {
		m.packed = &packedMatrix{format: f, dt: dt, out: out, in: in, group: group}
		n = m.packed.granules() * f.granule
		m.packed.bytes = n
	}
	if b.at+n > b.noise {
		b.at = 0
	}
	at := b.slab + driver.Ptr(b.at)
	b.at += (n + 255) &^ 255
	if m.packed != nil {
		m.packed.data = at
	} else {
		m.raw = at
	}
	return m, n
}

// launch enqueues a shape over new weights, and returns their bytes.
func (b *projectTimes) launch(dt backend.DType, group, shape, rows int) int {
	s := b.shapes[shape]
	bytes, to := 0, b.out
	var w []linear
	var dst []target
	for _, out := range s.out {
		m, n := b.weight(dt, group, out, s.in)
		w, dst = append(w, linear{w: m}), append(dst, target{f32: to})
		to += driver.Ptr(4 * rows * out)
		bytes += n
	}
	switch {
	case s.gated && b.prefill:
		b.d.prefillGated(target{bf16: b.out}, b.x, w[0], w[1], rows)
	case s.gated:
		b.d.projectGated(target{bf16: b.out}, b.x, w[0], w[1], rows)
	case b.prefill:
		b.d.prefillProject(dst, b.x, w, rows)
	default:
		b.d.project(dst, b.x, w, rows)
	}
	return bytes
}

// measure is the least time of a graph's replays, in microseconds.
func (b *projectTimes) measure(launches func()) float64 {
	if b.err != nil {
		return 0
	}
	least, err := b.d.timeGraph(b.replays, launches)
	b.err = err
	return least.Seconds() * 1e6
}

func (b *projectTimes) shape(dt backend.DType, group, shape, rows int) {
	line := fmt.Sprintf("%-8v %-7s %3d rows:", dt, b.shapes[shape].name, rows)
	best, bytes := math.Inf(1), 0
	for _, t := range b.variants {
		b.d.tuning = t
		us := b.measure(func() {
			for range b.launches {
				bytes = b.launch(dt, group, shape, rows)
			}
		}) / float64(b.launches)
		best = min(best, us)
		line += fmt.Sprintf("  %s %6.2f us", t.name(), us)
	}
	b.print(line, best, bytes)
}

// name says what a variant forces.
func (t tuning) name() string {
	switch {
	case t.stream:
		return "stream"
	case t.tiled.tiles > 0:
		return t.tiled.String()
	case t.wide.wide > 0:
		return t.wide.String()
	case t.shared > 0:
		return fmt.Sprintf("%d KiB", t.shared>>10)
	case t.group > 0:
		return fmt.Sprintf("by %d", t.group)
	}
	return "chosen"
}

// step times the projections of all layers and a head: of bf16, or of Q6_K
// where the weights are Q4_K.
func (b *projectTimes) step(dt backend.DType, group, rows int) {
	line := fmt.Sprintf("%-8v step    %3d rows:", dt, rows)
	best, bytes := math.Inf(1), 0
	for _, t := range b.variants {
		b.d.tuning = t
		us := b.measure(func() {
			bytes = 0
			for range b.layers {
				for shape := range len(b.shapes) - 1 {
					bytes += b.launch(dt, group, shape, rows)
				}
			}
			head := backend.BF16
			if dt == backend.Q4_K {
				head = backend.Q6_K
			}
			bytes += b.launch(head, 0, len(b.shapes)-1, rows)
		})
		best = min(best, us)
		line += fmt.Sprintf("  %s %6.3f ms", t.name(), us/1e3)
	}
	b.print(line, best, bytes)
}

func (b *projectTimes) print(line string, us float64, bytes int) {
	if b.err == nil {
		rate := float64(bytes) / us * 1e6
		fmt.Fprintf(b.w, "%s  best %4.0f GB/s, %2.0f %%\n", line, rate/1e9, 100*rate/benchPeak)
	}
}

// tiledVariants are what is chosen, stream.cuh, and the forms of tiled.cuh that
// may suit so many rows.
func tiledVariants(rows int) []tuning {
	list := []tuning{{}, {stream: true}}
	for _, t := range []tiledForm{
		{2, 1, 4, 1}, {2, 1, 3, 1}, {4, 1, 3, 1}, {4, 1, 2, 1}, {4, 4, 1, 1}, {4, 1, 3, 4}, {8, 1, 3, 1}, {8, 1, 2, 1}, {8, 2, 1, 1},
	} {
		if r := 8 * t.tiles; r < 2*rows && 4*r >= rows {
			list = append(list, tuning{tiled: t})
		}
	}
	return list
}

// benchTiled times the 8B model's projections by packed weights in every form,
// a line for each.
func (d *device) benchTiled(w io.Writer, dt backend.DType, rowCounts ...int) {
	b := &projectTimes{d: d, w: w, shapes: benchShapes[:4], noise: 6 << 30, launches: 20, replays: 3}
	defer b.close()
	b.open()
	group := 0
	if dt.Affine() {
		group = 64
	}
	for _, rows := range rowCounts {
		for i, s := range b.shapes {
			for _, t := range tiledVariants(rows) {
				if total := s.strips(); t.tiled.tiles > 0 {
					f, _ := formatOf(dt, group)
					if _, ok := d.tiledShapeOf(t.tiled, f, total, rows); !ok {
						continue
					}
				}
				d.tuning = t
				us := b.measure(func() {
					for range b.launches {
						b.launch(dt, group, i, rows)
					}
				}) / float64(b.launches)
				if b.err == nil {
					fmt.Fprintf(w, "%v %3d rows %-7s %-9s %6.1f us\n", dt, rows, s.name, t.name(), us)
				}
			}
		}
	}
}

// strips is how many strips of 16 outputs a shape has.
func (s benchShape) strips() (n int) {
	for _, out := range s.out {
		n += ceil(out, 16)
	}
	return n
}
