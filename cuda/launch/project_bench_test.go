package launch

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/cuda/driver"
	"windrow/cuda/measure"
)

// projectShape is projections that share a launch.
type projectShape struct {
	name  string
	out   []int
	in    int
	gated bool
}

// projectShapes are those of the 8B model; the head comes last.
var projectShapes = []projectShape{
	{"qkv", []int{4096, 1024, 1024}, 4096, false},
	{"o", []int{4096}, 4096, false},
	{"gate-up", []int{12288, 12288}, 4096, true},
	{"down", []int{4096}, 12288, false},
	{"head", []int{151936}, 4096, false},
}

// hybridShapes are those of Qwen3.5-27B, and of a mixture's layers with 2,048 inputs.
var hybridShapes = []projectShape{
	{"27b-qkv-z", []int{10240, 6144}, 5120, false},
	{"27b-out", []int{5120}, 6144, false},
	{"27b-gate-up", []int{17408, 17408}, 5120, true},
	{"27b-down", []int{5120}, 17408, false},
	{"a3b-qkv-z", []int{8192, 4096}, 2048, false},
	{"a3b-out", []int{2048}, 4096, false},
	{"30b-qkv", []int{4096, 512, 512}, 2048, false},
	{"a3b-shared", []int{512, 512}, 2048, true},
}

// tinyProjectShapes are those of [TestBenchmarks].
var tinyProjectShapes = []projectShape{
	{"qkv", []int{256, 64, 64}, 256, false}, {"gate-up", []int{128, 128}, 256, true}, {"head", []int{300}, 256, false},
}

// strips is how many strips of 16 outputs a shape has.
func (s projectShape) strips() (n int) {
	for _, out := range s.out {
		n += Ceil(out, 16)
	}
	return n
}

// slab is noise that weights are cut from, and memory for the inputs and outputs of
// projections.
type slab struct {
	m meter
	*measure.Slab
	x, out driver.Ptr
}

// slabRows is how many a slab's inputs and outputs have, at most.
const slabRows = 1024

func newSlab(m meter, bytes int, shapes []projectShape) *slab {
	m.Helper()
	in, out := 0, 0
	for _, s := range shapes {
		in, out = max(in, s.in), max(out, s.out[0])
	}
	r := rand.New(rand.NewPCG(1, 1))
	data := measure.Noise(r, bytes)
	b := &slab{m: m, Slab: m.Slab(bytes, data)}
	measure.NormalsBF16(data, r, 1)
	b.x, b.out = m.Filled(slabRows*in*2, data), m.Alloc(3*slabRows*out*4)
	m.Cleanup(func() {
		m.D.Tuning, m.D.prefill.route = Tuning{}, routeChosen
		m.D.prefill.free(m.D.Context) // tensor maps
	})
	return b
}

// weight cuts a new one from the slab, and returns its bytes.
func (b *slab) weight(t weightType, out, in int) (*Weight, int) {
	m := &Weight{DType: t.dt, Out: out, In: in, Group: t.group}
	if p, ok := PackedShape(t.dt, t.group, out, in); ok {
		p.Data = b.Cut(p.Bytes)
		m.Packed = p
		return m, p.Bytes
	}
	n := 2 * out * in
	m.Raw = b.Cut(n)
	return m, n
}

// launch enqueues a shape over new weights, as decode or as prefill does, and
// returns their bytes.
func (b *slab) launch(t weightType, s projectShape, rows int, prefill bool) int {
	bytes, to, d := 0, b.out, b.m.D
	var w []Linear
	var dst []Target
	for _, out := range s.out {
		m, n := b.weight(t, out, s.in)
		w, dst = append(w, Linear{Weight: m}), append(dst, Target{F32: to})
		to += driver.Ptr(4 * rows * out)
		bytes += n
	}
	switch {
	case s.gated && prefill:
		d.PrefillGated(Target{BF16: b.out}, b.x, w[0], w[1], Rows{Count: rows})
	case s.gated:
		d.ProjectGated(Target{BF16: b.out}, b.x, w[0], w[1], rows)
	case prefill:
		d.PrefillProject(dst, b.x, w, Rows{Count: rows})
	default:
		d.Project(dst, b.x, w, rows)
	}
	return bytes
}

// form names what a tuning forces, without slashes, which would begin another part
// of a benchmark's name.
func (t Tuning) form() string {
	switch {
	case t.Stream:
		return "stream"
	case t.Tiled.Tiles > 0:
		return strings.ReplaceAll(t.Tiled.String(), "/", ":")
	case t.wide.wide > 0:
		return strings.ReplaceAll(t.wide.String(), "/", ":")
	case t.sliced.rows > 0:
		return "sliced" + t.sliced.String()
	case t.groupedApart:
		return "apart"
	case t.grouped > 0:
		return fmt.Sprintf("tile%d", 8*t.grouped)
	case t.shared > 0:
		return fmt.Sprintf("%dKiB", t.shared>>10)
	case t.group > 0:
		return fmt.Sprintf("group%d", t.group)
	case t.noFew:
		return "notfew"
	case t.held == never:
		return "notheld"
	case t.held == always:
		return fmt.Sprintf("held%d", t.stages)
	case t.cluster > 0:
		return fmt.Sprintf("few:c%d", t.cluster)
	}
	return "chosen"
}

// projectSweep is a benchmark of decode projections: of all combinations.
type projectSweep struct {
	shapes   []projectShape
	types    []weightType
	rows     []int
	forms    func(rows int) []Tuning
	noise    int // bytes of the slab
	layers   int // of a step; 0: no steps
	launches int // of a graph of one shape
}

func (p projectSweep) run(m meter) {
	b := newSlab(m, p.noise, p.shapes)
	for _, t := range p.types {
		m.Run("type", t.dt.String(), func(m meter) {
			for _, rows := range p.rows {
				m.Run("rows", fmt.Sprint(rows), func(m meter) {
					for _, s := range p.shapes {
						m.Run("shape", s.name, func(m meter) { p.shape(m, b, t, s, rows) })
					}
					if p.layers > 0 {
						m.Run("shape", "step", func(m meter) { p.step(m, b, t, rows) })
					}
				})
			}
		})
	}
}

// each measures every form that a shape has on the device.
func (p projectSweep) each(m meter, t weightType, strips, rows int, measure func(m meter)) {
	for _, form := range p.forms(rows) {
		if form.Tiled.Tiles > 0 && strips > 0 {
			f, _ := formatOf(t.dt, t.group)
			if _, ok := m.D.tiledShapeOf(form.Tiled, f, strips, rows); !ok {
				continue
			}
		}
		m.Run("form", form.form(), func(m meter) {
			m.D.Tuning = form
			measure(m)
		})
	}
}

func (p projectSweep) shape(m meter, b *slab, t weightType, s projectShape, rows int) {
	p.each(m, t, s.strips(), rows, func(m meter) {
		bytes := 0
		seconds := graph(m, p.launches, func(int) { bytes = b.launch(t, s, rows, false) })
		m.Moved(bytes, seconds)
	})
}

// step measures the projections of all layers and a head: of bf16, or of Q6_K
// where the weights are Q4_K.
func (p projectSweep) step(m meter, b *slab, t weightType, rows int) {
	head := weightType{dt: backend.BF16}
	if t.dt == backend.Q4_K {
		head.dt = backend.Q6_K
	}
	p.each(m, t, 0, rows, func(m meter) {
		bytes, last := 0, len(p.shapes)-1
		seconds := graph(m, 1, func(int) {
			bytes = 0
			for range p.layers {
				for _, s := range p.shapes[:last] {
					bytes += b.launch(t, s, rows, false)
				}
			}
			bytes += b.launch(head, p.shapes[last], rows, false)
		})
		m.Moved(bytes, seconds)
	})
}

// ringTunings are rings of other sizes, and other strips of a pass; of one row
// kernels/stream.cuh.
func ringTunings(rows int) []Tuning {
	if rows == 1 {
		return []Tuning{{}, {Stream: true}}
	}
	return []Tuning{{}, {shared: 112 << 10}, {shared: 160 << 10}, {shared: 226 << 10}, {group: 2}, {group: 3}, {group: 6}}
}

// tiledTunings are what is chosen, stream.cuh, held.cuh, what would be chosen without it and few.cuh, clusters
// of that, and the forms of tiled.cuh that may suit so many rows.
func tiledTunings(rows int) []Tuning {
	list := []Tuning{{}, {Stream: true}}
	if rows <= fewRowsAtMost {
		list = append(list, Tuning{held: never}, Tuning{held: always, stages: 2}, Tuning{held: always, stages: 3})
	}
	if rows > 1 && rows <= fewRowsAtMost {
		list = append(list, Tuning{noFew: true}, Tuning{cluster: 1}, Tuning{cluster: 2}, Tuning{cluster: 4}, Tuning{cluster: 8})
	}
	for _, t := range []TiledForm{
		{1, 1, 5, 1}, {1, 1, 4, 1}, {1, 1, 3, 1}, {1, 1, 2, 1}, {2, 1, 5, 1}, {2, 1, 4, 1}, {2, 1, 3, 1}, {2, 1, 2, 1}, {4, 1, 3, 1}, {4, 1, 2, 1}, {4, 4, 1, 1}, {4, 1, 3, 4}, {4, 1, 2, 4}, {4, 1, 1, 4}, {8, 1, 3, 1}, {8, 1, 2, 1}, {8, 2, 1, 1}, {16, 1, 3, 1}, {16, 1, 2, 1},
	} {
		if r := 8 * t.Tiles; r < 2*rows && 4*r >= rows {
			list = append(list, Tuning{Tiled: t})
		}
	}
	return list
}

// BenchmarkProjections measures decode projections at the 8B model's shapes, each
// as a graph of launches over different weights, by ring and strips, and all
// projections of a step of 36 layers. It takes 7 GB.
func BenchmarkProjections(b *testing.B) {
	projectSweep{
		shapes: projectShapes, types: benchTypes, rows: []int{1, 8, 16, 32, 64, 128}, forms: ringTunings,
		noise: 6 << 30, layers: 36, launches: 20,
	}.run(benchDevice(b))
}

// tinyProjections are those of [TestBenchmarks].
var tinyProjections = projectSweep{
	shapes: tinyProjectShapes, types: benchTypes, rows: []int{1, 8, 16},
	forms: func(int) []Tuning { return []Tuning{{}, {shared: 100 << 10}} },
	noise: 1 << 20, layers: 1, launches: 2,
}

// BenchmarkTiledForms compares the forms of kernels/tiled.cuh, stream.cuh and
// what is chosen, for the 8B model's projections by packed weights.
func BenchmarkTiledForms(b *testing.B) {
	m := benchDevice(b)
	needsHopper(m)
	projectSweep{
		shapes: projectShapes[:4], types: benchTypes[1:], rows: []int{1, 8, 16, 24, 32, 48, 64, 96, 128, 256}, forms: tiledTunings,
		noise: 6 << 30, launches: 20,
	}.run(m)
}

// BenchmarkHybridForms does the same for hybridShapes.
func BenchmarkHybridForms(b *testing.B) {
	m := benchDevice(b)
	needsHopper(m)
	projectSweep{
		shapes: hybridShapes, types: benchTypes[1:], rows: []int{1, 4, 8, 16, 32, 48, 64, 96, 128, 256}, forms: tiledTunings, noise: 6 << 30, launches: 20,
	}.run(m)
}

// slicedTunings are what is chosen, stream.cuh, and the tiles of sliced_hopper.cu that suit so
// many rows.
func slicedTunings(rows int) []Tuning {
	list := []Tuning{{}, {Stream: true}}
	for _, t := range slicedTiles {
		if t.rows == 64 || rows > 64 {
			list = append(list, Tuning{sliced: t})
		}
	}
	return list
}

// BenchmarkSlicedForms compares the tiles of kernels/sliced_hopper.cu and stream.cuh, for the
// 8B model's projections by bf16 weights and its head.
func BenchmarkSlicedForms(b *testing.B) {
	m := benchDevice(b)
	needsHopper(m)
	projectSweep{
		shapes: projectShapes, types: benchTypes[:1], rows: []int{17, 24, 32, 48, 64, 96, 128, 256}, forms: slicedTunings, noise: 6 << 30, launches: 10,
	}.run(m)
}

var tinyTiled = projectSweep{
	shapes: tinyProjectShapes[:1], types: benchTypes[1:2], rows: []int{16}, forms: tiledTunings, noise: 1 << 20, launches: 2,
}
