package cuda

import (
	"fmt"
	"io"
	"slices"
	"strings"

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
	{"q, k, v", []int{4096, 1024, 1024}, 4096, false, false},
	{"o", []int{4096}, 4096, false, true},
	{"gate, up", []int{12288, 12288}, 4096, true, false},
	{"down", []int{4096}, 12288, false, true},
}

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
func (d *device) gemmVariants() []gemmVariant {
	always := func(gemmShape, int) bool { return true }
	var list []gemmVariant
	add := func(name string, t gemmTile) {
		takes := func(s gemmShape, rows int) bool { return !s.gated || t.gated.name != "" }
		list = append(list, gemmVariant{name + " " + t.name, takes, func(s gemmShape, x driver.Ptr, parts []gemmPart, rows int) {
			if s.gated {
				d.gemmGated(t, parts[0].dst, x, parts[0], parts[1], s.in, rows)
			} else {
				d.gemm(t, x, parts, s.in, rows)
			}
		}})
	}
	for _, t := range []gemmTile{gemmWide, gemmNarrow, gemmDeep} {
		if d.info.SharedPerBlock >= t.plain.shared {
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
		var w []linear
		var dst []target
		for _, p := range parts {
			w = append(w, linear{w: &matrix{out: p.out, in: s.in, raw: p.w, dt: backend.BF16, tensorCoreShape: true}})
			dst = append(dst, p.dst)
		}
		if s.gated {
			d.projectGated(dst[0], x, w[0], w[1], rows)
		} else {
			d.project(dst, x, w, rows)
		}
	}})
	if d.blas != nil {
		list = append(list, gemmVariant{"cublaslt", always, func(s gemmShape, x driver.Ptr, parts []gemmPart, rows int) {
			for _, p := range parts {
				d.blasProject(p, x, s.in, rows)
			}
			if s.gated {
				d.gatedAct(0, parts[0].dst.bf16, parts[0].dst.bf16, parts[1].dst.bf16, true, rows*s.outs[0])
			}
		}})
	}
	return list
}

// chosenVariant names the variant that a prefill of bf16 weights takes.
func (d *device) chosenVariant(s gemmShape, rows int) string {
	w := []linear{{w: &matrix{out: s.outs[0], in: s.in}}}
	switch route := d.chosen(w, rows); route {
	case routeDecode:
		return "decode"
	case routeBLAS:
		return "cublaslt"
	case routeHopper:
		return "hopper " + d.fastest(d.tiles(route, s.gated, s.in), s.in, rows, s.outs...).name
	default:
		return "own " + d.fastest(d.tiles(route, s.gated, s.in), s.in, rows, s.outs...).name
	}
}

// gemmBench is the memory of a benchmark: weights that take turns so that L2
// does not hold them, inputs and targets, all random.
type gemmBench struct {
	d             *device
	block         []byte
	weights, x, y driver.Ptr
	owned         []driver.Ptr
	start, end    *driver.Event
}

const (
	benchTurns  = 3
	benchWeight = 2 * 2 * 12288 * 4096 // bytes of gate and up
)

func (d *device) newGEMMBench(rows int) (b *gemmBench, err error) {
	b = &gemmBench{d: d}
	seed := gemmNoise(1)
	_, b.block = seed.bf16Noise(16 << 20)
	for _, m := range []struct {
		at    *driver.Ptr
		bytes int
	}{{&b.weights, benchTurns * benchWeight}, {&b.x, 2 * rows * 12288}, {&b.y, 4 * rows * 2 * 12288}} {
		if *m.at, err = b.random(m.bytes); err != nil {
			return b, err
		}
	}
	if b.start, err = d.ctx.NewEvent(); err == nil {
		b.end, err = d.ctx.NewEvent()
	}
	return b, err
}

// random is n bytes of memory that hold random bf16 numbers.
func (b *gemmBench) random(n int) (driver.Ptr, error) {
	p, err := b.d.ctx.Alloc(n)
	if err != nil {
		return 0, err
	}
	b.owned = append(b.owned, p)
	for at := 0; at < n && err == nil; at += len(b.block) {
		err = b.d.ctx.Upload(p+driver.Ptr(at), b.block[:min(len(b.block), n-at)])
	}
	return p, err
}

func (b *gemmBench) free() {
	for _, p := range b.owned {
		b.d.ctx.Free(p)
	}
	for _, e := range []*driver.Event{b.start, b.end} {
		if e != nil {
			e.Close()
		}
	}
	b.d.prefill.free(b.d.ctx)
}

// parts lays out a shape's weights and targets for turn i.
func (b *gemmBench) parts(s gemmShape, rows, i int) []gemmPart {
	var parts []gemmPart
	at, to := b.weights+driver.Ptr(i%benchTurns*benchWeight), b.y
	for _, out := range s.outs {
		p := gemmPart{w: at, out: out}
		if s.gated {
			p.dst.bf16 = to
		} else {
			p.dst.f32, p.dst.add = to, s.add
		}
		parts = append(parts, p)
		at += driver.Ptr(2 * out * s.in)
		to += driver.Ptr(4 * out * rows)
	}
	return parts
}

// time is the seconds of one of times calls of run.
func (b *gemmBench) time(times int, run func(i int)) (float64, error) {
	for i := range 3 {
		run(i)
	}
	if err := b.start.Record(b.d.stream); err != nil {
		return 0, err
	}
	for i := range times {
		run(i)
	}
	if err := b.end.Record(b.d.stream); err != nil {
		return 0, err
	}
	if err := b.d.take(); err != nil {
		return 0, err
	}
	if err := b.d.stream.Synchronize(); err != nil {
		return 0, err
	}
	took, err := driver.Elapsed(b.start, b.end)
	return took.Seconds() / float64(times), err
}

// benchGEMM times the 8B model's prefill projections by every variant whose
// name contains one of only (all where it is empty). It prints TFLOP/s of each,
// and the milliseconds of all of a model's projections by the fastest of each shape.
func (d *device) benchGEMM(w io.Writer, rows []int, only ...string) error {
	if _, err := d.prepareGEMM(nil, 0); err != nil {
		return err
	}
	b, err := d.newGEMMBench(slices.Max(rows))
	defer b.free()
	if err != nil {
		return err
	}
	variants := d.gemmVariants()
	if len(only) > 0 {
		variants = slices.DeleteFunc(variants, func(v gemmVariant) bool {
			return !slices.ContainsFunc(only, func(o string) bool { return strings.Contains(v.name, o) })
		})
	}
	const layers = 36
	for _, n := range rows {
		total, chosen := 0.0, 0.0
		for _, s := range gemmShapes {
			best, taken := 0.0, d.chosenVariant(s, n)
			for _, v := range variants {
				if !v.takes(s, n) {
					continue
				}
				times := int(min(200, max(6, 1e13/s.flop(n))))
				seconds, err := b.time(times, func(i int) { v.run(s, b.x, b.parts(s, n, i), n) })
				if err != nil {
					fmt.Fprintf(w, "%5d rows  %-9s %-15s %v\n", n, s.name, v.name, err)
					continue
				}
				if best == 0 || seconds < best {
					best = seconds
				}
				mark := ""
				if v.name == taken {
					mark = ", chosen"
					chosen += layers * seconds
				}
				fmt.Fprintf(w, "%5d rows  %-9s %-15s %8.1f us %6.0f TFLOP/s%s\n", n, s.name, v.name, seconds*1e6, s.flop(n)/seconds/1e12, mark)
			}
			total += layers * best
		}
		fmt.Fprintf(w, "%5d rows  the projections of %d layers, each by its fastest: %.2f ms, as chosen: %.2f ms\n", n, layers, total*1e3, chosen*1e3)
	}
	if len(only) > 0 && !slices.Contains(only, "dequantise") {
		return nil
	}
	return b.dequantising(w)
}

// dequantising times the decoding of packed 4-bit gate weights to bf16.
func (b *gemmBench) dequantising(w io.Writer) error {
	const out, in, group = 12288, 4096, 64
	t := backend.Tensor{Name: "gate", DType: backend.Affine4, Shape: []int{out, in}, Group: group}
	raw, scales := b.weights, b.weights+out*in/2
	p, err := b.d.pack(t, raw, scales, scales)
	if err != nil {
		return err
	}
	b.owned = append(b.owned, p.data)
	m := &matrix{dt: t.DType, out: out, in: in, group: group, packed: p}
	seconds, err := b.time(50, func(i int) { b.d.dequantise(b.weights+driver.Ptr((1+i%2)*benchWeight), m) })
	if err != nil {
		return err
	}
	bytes := float64(out*in*2 + p.bytes)
	fmt.Fprintf(w, "dequantise %v [%d, %d]: %.1f us, %.0f GB/s; all projections of the model: %.2f ms\n", t.DType, out, in, seconds*1e6, bytes/seconds/1e9, seconds*1e3*6.95e9/(out*in))
	return nil
}
