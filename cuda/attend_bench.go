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

// attendBench holds the memory of benchAttention.
type attendBench struct {
	d       *device
	w       io.Writer
	layers  int // whose keys and values the launches of a graph go through
	replays int // of each graph
	owned   []driver.Ptr
	kv      driver.Ptr // random numbers
	q, out  driver.Ptr
	err     error
}

// benchAttention times decode attention, prefill attention and RotateStore at
// the 8B model's shape (32 query heads, 8 KV heads, dimension 128), each as a
// graph of one launch a layer: the keys and values of 20 layers take turns, so
// that L2 does not hold them. It prints microseconds a layer. It takes a GPU a
// few seconds and 23 GB.
func (d *device) benchAttention(w io.Writer) {
	b := &attendBench{d: d, w: w, layers: 20, replays: 5}
	defer b.close()
	b.open(8*32768+8*64, 8192)
	for _, t := range []backend.KVType{backend.KVBF16, backend.KVInt8} {
		a := b.shape(t)
		for _, context := range []int{512, 2048, 4096, 32768} {
			for _, spans := range []int{1, 8} {
				for _, rows := range []int{1, 8, 16, 32} {
					b.decode(a, context, spans, rows)
				}
			}
		}
		for _, rows := range []int{512, 2048, 8192} {
			b.prefill(a, rows)
		}
		for _, rows := range []int{1, 16, 128, 2048} {
			b.rotate(a, rows)
		}
	}
}

func (b *attendBench) shape(t backend.KVType) attention {
	return attention{qHeads: 32, kvHeads: 8, dim: 128, scale: float32(1 / math.Sqrt(128)), kv: t, layers: b.layers}
}

// open makes room for slots of bf16 keys and values, and for rows of queries.
func (b *attendBench) open(slots, rows int) {
	a := b.shape(backend.KVBF16)
	n := 4 * rows * a.qHeads * a.dim
	b.q, b.out = b.alloc(n), b.alloc(n)
	b.noise(b.q, n)
	n = slots / pageSlots * pageBytes(backend.KVLayout{Layers: a.layers, KVHeads: a.kvHeads, HeadDim: a.dim, DType: a.kv})
	b.kv = b.alloc(n)
	b.noise(b.kv, n)
}

func (b *attendBench) close() {
	for _, p := range b.owned {
		b.err = errors.Join(b.err, b.d.ctx.Free(p))
	}
	if err := errors.Join(b.err, b.d.freeParts()); err != nil {
		fmt.Fprintln(b.w, "attention:", err)
	}
}

func (b *attendBench) alloc(n int) driver.Ptr {
	if b.err != nil {
		return 0
	}
	var p driver.Ptr
	if p, b.err = b.d.ctx.Alloc(n); b.err == nil {
		b.owned = append(b.owned, p)
	}
	return p
}

// noise fills n bytes with bf16 normal numbers: 4 MiB of them, over and over.
func (b *attendBench) noise(p driver.Ptr, n int) {
	r, data := rand.New(rand.NewPCG(1, 1)), make([]byte, min(n, 4<<20))
	for i := 0; i+1 < len(data); i += 2 {
		binary.LittleEndian.PutUint16(data[i:], uint16(math.Float32bits(float32(r.NormFloat64()))>>16))
	}
	if b.err == nil {
		b.err = b.d.ctx.Upload(p, data)
	}
	for done := len(data); done < n && b.err == nil; done *= 2 {
		b.err = b.d.stream.Copy(p+driver.Ptr(done), p, min(done, n-done))
	}
	if b.err == nil {
		b.err = b.d.stream.Synchronize()
	}
}

// step makes a step block of spans of rows rows behind base others.
func (b *attendBench) step(a attention, spans, base, rows int) (driver.Ptr, stepShape) {
	l := backend.KVLayout{Layers: a.layers, KVHeads: a.kvHeads, HeadDim: a.dim, DType: a.kv, Slots: base + rows}
	pages := (l.Slots + pageSlots - 1) / pageSlots
	v := &stepValues{rows: spans * rows, cos: make([]float32, spans*rows*a.dim/2), sin: make([]float32, spans*rows*a.dim/2)}
	for i := range spans {
		c := &kv{layout: l}
		for j := range pages {
			c.pages = append(c.pages, b.kv+driver.Ptr((i*pages+j)*pageBytes(l)))
		}
		v.spans = append(v.spans, backend.Span{KV: c, Base: base, First: i * rows, Rows: rows})
	}
	shape := stepShape{bucket: rowBucket(v.rows), half: a.dim / 2, spans: powerOfTwo(spans), pages: spans * pages}
	p := b.alloc(shape.layout().size)
	if b.err == nil {
		block := make([]byte, shape.layout().size)
		v.write(block, shape, p)
		b.err = b.d.ctx.Upload(p, block)
	}
	return p, shape
}

// measure returns the microseconds that one of the launches takes in a graph
// of one a layer: the least of its replays.
func (b *attendBench) measure(launch func(layer int)) float64 {
	if b.err != nil {
		return 0
	}
	least, err := b.d.timeGraph(b.replays, func() {
		for layer := range b.layers {
			launch(layer)
		}
	})
	b.err = err
	return least.Seconds() * 1e6 / float64(b.layers)
}

// decode prints the time by units and queries of a block, the choice of splitOf
// in brackets, and the rate at which the best reads keys and values.
func (b *attendBench) decode(a attention, context, spans, rows int) {
	step, shape := b.step(a, spans, context, rows)
	chunks := powerOfTwo((context + rows + chunkSlots - 1) / chunkSlots)
	chosen, best := b.d.splitOf(a.qHeads, shape.spans, chunks, rows), math.Inf(1)
	line := fmt.Sprintf("%-4v decode  %2d x %2d rows, context %5d, us by units:", a.kv, spans, rows, context)
	for _, split := range []attendSplit{{1, 16}, {1, 32}, {1, 64}, {4, 16}, {4, 32}, {4, 64}, {16, 32}, {16, 64}} {
		if b.err == nil {
			_, b.err = b.d.roomForParts(attendRoom(shape.bucket, a.qHeads, a.dim, chunks, split.units))
		}
		us := b.measure(func(layer int) {
			b.d.attendBy(split, 0, b.out, b.q, a, step, layer, shape.bucket, rows, shape.spans, chunks)
		})
		best = min(best, us)
		text := fmt.Sprintf("%d/%d %.2f", split.units, split.queries, us)
		if split == chosen {
			text = "[" + text + "]"
		}
		line += fmt.Sprintf(" %14s", text)
	}
	if b.d.hopperAttends(a) {
		line += fmt.Sprintf("  grouped %.2f", b.measure(func(layer int) {
			b.d.attendFlash(flashGrouped(), 0, b.out, b.q, a, step, layer, shape.bucket, shape.spans, rows)
		}))
	}
	if b.err == nil {
		l := backend.KVLayout{Layers: 1, KVHeads: a.kvHeads, HeadDim: a.dim, DType: a.kv}
		fmt.Fprintf(b.w, "%s  best %5.0f GB/s\n", line, float64(spans*(context+rows))*float64(l.BytesPerToken())/best/1e3)
	}
}

func (b *attendBench) prefill(a attention, rows int) {
	step, shape := b.step(a, 1, 0, rows)
	variants := []flashVariant{flashPlain(a)}
	if b.d.hopperAttends(a) {
		variants = append(variants, flashHopper())
	}
	for _, v := range variants {
		us := b.measure(func(layer int) {
			b.d.attendFlash(v, 0, b.out, b.q, a, step, layer, shape.bucket, shape.spans, rows)
		})
		if b.err == nil {
			flop := 2 * float64(rows) * float64(rows) * float64(a.qHeads*a.dim) // two products, half of them masked
			fmt.Fprintf(b.w, "%-4v prefill %5d rows: %8.1f us, %4.0f TFLOP/s  %s\n", a.kv, rows, us, flop/us/1e6, v.name)
		}
	}
	if b.d.flash.refused != nil {
		fmt.Fprintln(b.w, b.d.flash.refused)
	}
}

func (b *attendBench) rotate(a attention, rows int) {
	step, shape := b.step(a, 1, 0, rows)
	h := rotation{qHeads: a.qHeads, kvHeads: a.kvHeads, dim: a.dim, qNorm: b.q, kNorm: b.q, eps: 1e-6, kv: a.kv, layers: a.layers}
	us := b.measure(func(layer int) { b.d.rotateStore(b.q, b.q, b.q, b.out, h, step, layer, shape.bucket) })
	if b.err == nil {
		fmt.Fprintf(b.w, "%-4v rotate  %5d rows: %8.2f us\n", a.kv, rows, us)
	}
}
