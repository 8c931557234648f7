package launch

import (
	"fmt"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/cuda/driver"
)

// gemmShape is a projection of the 8B model; gated has two weights of out rows.
type gemmShape struct {
	name  string
	outs  []int
	in    int
	gated bool
	add   bool
}

var gemmShapes = []gemmShape{
	{"qkv", []int{4096, 1024, 1024}, 4096, false, false},
	{"o", []int{4096}, 4096, false, true},
	{"gate-up", []int{12288, 12288}, 4096, true, false},
	{"down", []int{4096}, 12288, false, true},
}

// tinyGEMMShapes are those of [TestBenchmarks].
var tinyGEMMShapes = []gemmShape{{"qkv", []int{128, 64, 64}, 64, false, false}, {"gate-up", []int{128, 128}, 64, true, false}}

// layers8B is how many the 8B model has.
const layers8B = 36

// outputs is how many outputs the shape's weights have in all.
func (s gemmShape) outputs() (n int) {
	for _, out := range s.outs {
		n += out
	}
	return n
}

func (s gemmShape) flop(rows int) float64 {
	return 2 * float64(rows) * float64(s.outputs()) * float64(s.in)
}

// gemmVariant is one way to do a projection; run enqueues it, where takes says
// that it can.
type gemmVariant struct {
	name  string
	takes func(s gemmShape, rows int) bool
	run   func(s gemmShape, x driver.Ptr, parts []gemmPart, rows int)
}

// gemmVariants lists every tile of every route that the device takes.
func (d *Device) gemmVariants() []gemmVariant {
	always := func(gemmShape, int) bool { return true }
	var list []gemmVariant
	add := func(name string, t gemmTile) {
		takes := func(s gemmShape, rows int) bool { return !s.gated || t.gated.name != "" }
		list = append(list, gemmVariant{name + "-" + t.name, takes, func(s gemmShape, x driver.Ptr, parts []gemmPart, rows int) {
			if s.gated {
				d.gemmGated(t, parts[0].dst, x, parts[0], parts[1], s.in, rows)
			} else {
				d.gemm(t, x, parts, s.in, rows)
			}
		}})
	}
	for _, t := range []gemmTile{gemmWide, gemmNarrow, gemmDeep} {
		if d.Info.SharedPerBlock >= t.plain.shared {
			add("own", t)
		}
	}
	if d.prefill.hopper != nil {
		for _, t := range hopperTiles {
			add("hopper", t)
		}
	}
	few := func(s gemmShape, rows int) bool { return rows <= 512 }
	list = append(list, gemmVariant{"decode", few, func(s gemmShape, x driver.Ptr, parts []gemmPart, rows int) {
		var w []Linear
		var dst []Target
		for _, p := range parts {
			w = append(w, Linear{Weight: &Weight{Out: p.out, In: s.in, Raw: p.w, DType: backend.BF16, TensorCoreShape: true}})
			dst = append(dst, p.dst)
		}
		if s.gated {
			d.ProjectGated(dst[0], x, w[0], w[1], rows)
		} else {
			d.Project(dst, x, w, rows)
		}
	}})
	if d.blas != nil {
		list = append(list, gemmVariant{"cublaslt", always, func(s gemmShape, x driver.Ptr, parts []gemmPart, rows int) {
			for _, p := range parts {
				d.blasProject(p, x, s.in, rows)
			}
			if s.gated {
				d.GatedAct(0, parts[0].dst.BF16, parts[0].dst.BF16, parts[1].dst.BF16, true, rows*s.outs[0])
			}
		}})
	}
	return list
}

// chosenVariant names the variant that a prefill of bf16 weights takes.
func (d *Device) chosenVariant(s gemmShape, rows int) string {
	w := []Linear{{Weight: &Weight{Out: s.outs[0], In: s.in}}}
	switch route := d.chosen(w, Rows{Count: rows}); route {
	case routeDecode:
		return "decode"
	case routeBLAS:
		return "cublaslt"
	case routeHopper:
		return "hopper-" + d.fastest(d.tiles(route, s.gated, s.in), s.in, rows, s.outs...).name
	default:
		return "own-" + d.fastest(d.tiles(route, s.gated, s.in), s.in, rows, s.outs...).name
	}
}

// gemmWeights are random weights that take turns so that L2 does not hold them,
// random inputs, and targets.
type gemmWeights struct {
	weights, x, y driver.Ptr
	turn          int // bytes of the largest shape's weights
}

const gemmTurns = 3

func newGEMMWeights(m meter, shapes []gemmShape, rows int) *gemmWeights {
	m.Helper()
	in, outputs, b := 0, 0, &gemmWeights{}
	for _, s := range shapes {
		in, outputs, b.turn = max(in, s.in), max(outputs, s.outputs()), max(b.turn, 2*s.outputs()*s.in)
	}
	seed := gemmNoise(1)
	_, data := seed.bf16Noise(16 << 20)
	b.weights, b.x, b.y = m.Filled(gemmTurns*b.turn, data), m.Filled(2*rows*in, data), m.Filled(4*rows*outputs, data)
	m.Cleanup(func() { m.D.prefill.free(m.D.Context) })
	return b
}

// parts lays out a shape's weights and targets for turn i.
func (b *gemmWeights) parts(s gemmShape, rows, i int) []gemmPart {
	var parts []gemmPart
	at, to := b.weights+driver.Ptr(i%gemmTurns*b.turn), b.y
	for _, out := range s.outs {
		p := gemmPart{w: at, out: out}
		if s.gated {
			p.dst.BF16 = to
		} else {
			p.dst.F32, p.dst.Add = to, s.add
		}
		parts = append(parts, p)
		at += driver.Ptr(2 * out * s.in)
		to += driver.Ptr(4 * out * rows)
	}
	return parts
}

// BenchmarkGEMM measures the 8B model's prefill projections in bf16 by every
// variant, and by the one that prefill chooses; "shape=layer" are all projections
// of a layer as chosen, with "ms/model" for those of 36. Launches are enqueued one
// after the other, without a graph: it takes what an H100 has from 64 rows on.
func BenchmarkGEMM(b *testing.B) {
	gemmTimes(benchDevice(b), gemmShapes, []int{64, 128, 256, 512, 1024, 2048, 8192})
}

func gemmTimes(m meter, shapes []gemmShape, rowCounts []int) {
	d := m.D
	if _, ok := m.TB.(*testing.B); ok {
		d.findBLAS()
		m.Cleanup(func() {
			if err := d.blas.close(); err != nil {
				m.Error(err)
			}
			d.blas = nil
		})
	}
	_, err := d.PrepareGEMM(nil, Rows{})
	m.Check(err)
	b := newGEMMWeights(m, shapes, slices.Max(rowCounts))
	variants := d.gemmVariants()
	for _, rows := range rowCounts {
		m.Run("rows", fmt.Sprint(rows), func(m meter) {
			for _, s := range shapes {
				m.Run("shape", s.name, func(m meter) {
					for _, v := range append(variants, d.chosenOf(variants, s, rows)) {
						if v.takes != nil && v.takes(s, rows) {
							m.Run("by", v.name, func(m meter) { b.variant(m, v, s, rows) })
						}
					}
				})
			}
			m.Run("shape", "layer", func(m meter) {
				m.Run("by", "chosen", func(m meter) { b.layer(m, variants, shapes, rows) })
			})
		})
	}
}

// chosenOf is the variant that prefill chooses, under the name "chosen".
func (d *Device) chosenOf(variants []gemmVariant, s gemmShape, rows int) gemmVariant {
	name := d.chosenVariant(s, rows)
	for _, v := range variants {
		if v.name == name {
			v.name = "chosen"
			return v
		}
	}
	return gemmVariant{}
}

// variant measures launches enqueued one after the other, as many as take about
// 10 ms on an H100, so that the GPU is never idle.
func (b *gemmWeights) variant(m meter, v gemmVariant, s gemmShape, rows int) {
	times := int(min(200, max(6, 1e13/s.flop(rows))))
	if _, ok := m.TB.(*testing.T); ok {
		times = 2
	}
	seconds := m.Rounds(times, func() error {
		for i := range times {
			v.run(s, b.x, b.parts(s, rows, i), rows)
		}
		return nil
	})
	m.Multiplied(s.flop(rows), seconds)
}

// layer measures the projections of a layer, each as it is chosen.
func (b *gemmWeights) layer(m meter, variants []gemmVariant, shapes []gemmShape, rows int) {
	flop := 0.0
	for _, s := range shapes {
		flop += s.flop(rows)
		if m.D.chosenOf(variants, s, rows).run == nil {
			m.Fatalf("no variant is %q", m.D.chosenVariant(s, rows))
		}
	}
	const times = 10
	seconds := m.Rounds(times, func() error {
		for i := range times {
			for _, s := range shapes {
				m.D.chosenOf(variants, s, rows).run(s, b.x, b.parts(s, rows, i), rows)
			}
		}
		return nil
	})
	m.Multiplied(flop, seconds)
	m.Report(layers8B*seconds*1e3, "ms/model")
}

// BenchmarkDequantise measures the decoding of packed gate weights to bf16, by
// the bytes read and written; "ms/model" is that of all the 8B model's projections.
func BenchmarkDequantise(b *testing.B) {
	dequantiseTimes(benchDevice(b), 12288, 4096, benchTypes[1:])
}

func dequantiseTimes(m meter, out, in int, types []weightType) {
	seed := gemmNoise(1)
	_, data := seed.bf16Noise(16 << 20)
	const turns = 4
	noise, to := m.Filled(turns*2*out*in, data), m.Alloc(2*out*in)
	for _, t := range types {
		m.Run("type", t.dt.String(), func(m meter) {
			f, _ := formatOf(t.dt, t.group)
			p := &packedMatrix{format: f, dt: t.dt, out: out, in: in, group: t.group}
			p.Bytes = p.granules() * f.granule
			const times = 20
			seconds := m.Rounds(times, func() error {
				for i := range times {
					p.Data = noise + driver.Ptr(i%turns*2*out*in)
					m.D.dequantise(to, &Weight{DType: t.dt, Out: out, In: in, Group: t.group, Packed: p})
				}
				return nil
			})
			m.Moved(2*out*in+p.Bytes, seconds)
			m.Report(seconds*1e3*6.95e9/float64(out*in), "ms/model")
		})
	}
}
