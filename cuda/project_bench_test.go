package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/cuda/driver"
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

// tinyProjectShapes are those of [TestBenchmarks].
var tinyProjectShapes = []projectShape{
	{"qkv", []int{256, 64, 64}, 256, false}, {"gate-up", []int{128, 128}, 256, true}, {"head", []int{300}, 256, false},
}

// strips is how many strips of 16 outputs a shape has.
func (s projectShape) strips() (n int) {
	for _, out := range s.out {
		n += ceil(out, 16)
	}
	return n
}

// slab is noise that weights are cut from, large against every L2, and memory
// for the inputs and outputs of projections.
type slab struct {
	m      meter
	data   driver.Ptr
	bytes  int
	at     int // the next weight
	x, out driver.Ptr
}

// slabRows is how many a slab's inputs and outputs have, at most.
const slabRows = 1024

func newSlab(m meter, bytes int, shapes []projectShape) *slab {
	m.Helper()
	b := &slab{m: m, bytes: bytes}
	in, out := 0, 0
	for _, s := range shapes {
		in, out = max(in, s.in), max(out, s.out[0])
	}
	r, data := rand.New(rand.NewPCG(1, 1)), make([]byte, min(bytes, 16<<20))
	for i := 0; i < len(data); i += 8 {
		binary.LittleEndian.PutUint64(data[i:], r.Uint64()&0x3fff3fff3fff3fff) // under 2 as bf16 numbers
	}
	b.data = m.filled(bytes, data)
	normalsBF16(data, r, 1)
	b.x, b.out = m.filled(slabRows*in*2, data), m.alloc(3*slabRows*out*4)
	m.Cleanup(func() {
		m.d.tuning, m.d.prefill.route = tuning{}, routeChosen
		m.d.prefill.free(m.d.ctx) // tensor maps
	})
	return b
}

// normalsBF16 fills data with normal numbers of that deviation, cut to bf16.
func normalsBF16(data []byte, r *rand.Rand, deviation float64) {
	for i := 0; i+1 < len(data); i += 2 {
		binary.LittleEndian.PutUint16(data[i:], uint16(math.Float32bits(float32(deviation*r.NormFloat64()))>>16))
	}
}

// weight cuts a new one from the slab, and returns its bytes.
func (b *slab) weight(t weightType, out, in int) (*matrix, int) {
	m := &matrix{dt: t.dt, out: out, in: in, group: t.group}
	n := 2 * out * in
	if f, ok := formatOf(t.dt, t.group); ok {
		m.packed = &packedMatrix{format: f, dt: t.dt, out: out, in: in, group: t.group}
		n = m.packed.granules() * f.granule
		m.packed.bytes = n
	}
	if b.at+n > b.bytes {
		b.at = 0
	}
	at := b.data + driver.Ptr(b.at)
	b.at += (n + 255) &^ 255
	if m.packed != nil {
		m.packed.data = at
	} else {
		m.raw = at
	}
	return m, n
}

// launch enqueues a shape over new weights, as decode or as prefill does, and
// returns their bytes.
func (b *slab) launch(t weightType, s projectShape, rows int, prefill bool) int {
	bytes, to, d := 0, b.out, b.m.d
	var w []linear
	var dst []target
	for _, out := range s.out {
		m, n := b.weight(t, out, s.in)
		w, dst = append(w, linear{w: m}), append(dst, target{f32: to})
		to += driver.Ptr(4 * rows * out)
		bytes += n
	}
	switch {
	case s.gated && prefill:
		d.prefillGated(target{bf16: b.out}, b.x, w[0], w[1], rows)
	case s.gated:
		d.projectGated(target{bf16: b.out}, b.x, w[0], w[1], rows)
	case prefill:
		d.prefillProject(dst, b.x, w, rows)
	default:
		d.project(dst, b.x, w, rows)
	}
	return bytes
}

// form names what a tuning forces, without slashes, which would begin another part
// of a benchmark's name.
func (t tuning) form() string {
	switch {
	case t.stream:
		return "stream"
	case t.tiled.tiles > 0:
		return strings.ReplaceAll(t.tiled.String(), "/", ":")
	case t.wide.wide > 0:
		return strings.ReplaceAll(t.wide.String(), "/", ":")
	case t.shared > 0:
		return fmt.Sprintf("%dKiB", t.shared>>10)
	case t.group > 0:
		return fmt.Sprintf("group%d", t.group)
	}
	return "chosen"
}

// projectSweep is a benchmark of decode projections: of all combinations.
type projectSweep struct {
	shapes   []projectShape
	types    []weightType
	rows     []int
	forms    func(rows int) []tuning
	noise    int // bytes of the slab
	layers   int // of a step; 0: no steps
	launches int // of a graph of one shape
}

func (p projectSweep) run(m meter) {
	b := newSlab(m, p.noise, p.shapes)
	for _, t := range p.types {
		m.run("type", t.dt.String(), func(m meter) {
			for _, rows := range p.rows {
				m.run("rows", fmt.Sprint(rows), func(m meter) {
					for _, s := range p.shapes {
						m.run("shape", s.name, func(m meter) { p.shape(m, b, t, s, rows) })
					}
					if p.layers > 0 {
						m.run("shape", "step", func(m meter) { p.step(m, b, t, rows) })
					}
				})
			}
		})
	}
}

// each measures every form that a shape has on the device.
func (p projectSweep) each(m meter, t weightType, strips, rows int, measure func(m meter)) {
	for _, form := range p.forms(rows) {
		if form.tiled.tiles > 0 && strips > 0 {
			f, _ := formatOf(t.dt, t.group)
			if _, ok := m.d.tiledShapeOf(form.tiled, f, strips, rows); !ok {
				continue
			}
		}
		m.run("form", form.form(), func(m meter) {
			m.d.tuning = form
			measure(m)
		})
	}
}

func (p projectSweep) shape(m meter, b *slab, t weightType, s projectShape, rows int) {
	p.each(m, t, s.strips(), rows, func(m meter) {
		bytes := 0
		seconds := m.graph(p.launches, func(int) { bytes = b.launch(t, s, rows, false) })
		m.moved(bytes, seconds)
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
		seconds := m.graph(1, func(int) {
			bytes = 0
			for range p.layers {
				for _, s := range p.shapes[:last] {
					bytes += b.launch(t, s, rows, false)
				}
			}
			bytes += b.launch(head, p.shapes[last], rows, false)
		})
		m.moved(bytes, seconds)
	})
}

// ringTunings are rings of other sizes, and other strips of a pass.
func ringTunings(int) []tuning {
	return []tuning{{}, {shared: 112 << 10}, {shared: 160 << 10}, {shared: 226 << 10}, {group: 2}, {group: 3}, {group: 6}}
}

// tiledTunings are what is chosen, stream.cuh, and the forms of tiled.cuh that
// may suit so many rows.
func tiledTunings(rows int) []tuning {
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

// BenchmarkProjections measures decode projections at the 8B model's shapes, each
// as a graph of launches over different weights, by ring and strips, and all
// projections of a step of 36 layers. It takes 7 GB.
func BenchmarkProjections(b *testing.B) {
	projectSweep{
		shapes: projectShapes, types: benchTypes, rows: []int{8, 16, 32, 64, 128}, forms: ringTunings,
		noise: 6 << 30, layers: 36, launches: 20,
	}.run(benchDevice(b))
}

// tinyProjections are those of [TestBenchmarks].
var tinyProjections = projectSweep{
	shapes: tinyProjectShapes, types: benchTypes, rows: []int{8, 16},
	forms: func(int) []tuning { return []tuning{{}, {shared: 100 << 10}} },
	noise: 1 << 20, layers: 1, launches: 2,
}

// BenchmarkTiledForms compares the forms of kernels/tiled.cuh, stream.cuh and
// what is chosen, for the 8B model's projections by packed weights.
func BenchmarkTiledForms(b *testing.B) {
	m := benchDevice(b)
	m.needsHopper()
	projectSweep{
		shapes: projectShapes[:4], types: benchTypes[1:], rows: []int{8, 16, 24, 32, 48, 64, 128}, forms: tiledTunings,
		noise: 6 << 30, launches: 20,
	}.run(m)
}

var tinyTiled = projectSweep{
	shapes: tinyProjectShapes[:1], types: benchTypes[1:2], rows: []int{16}, forms: tiledTunings, noise: 1 << 20, launches: 2,
}
