package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"windrow/backend"
	"windrow/cuda/driver"
)

// attendBench is the memory of benchmarks of attention at the 8B model's shape:
// 32 query heads, 8 KV heads, dimension 128. Each is a graph of one launch a
// layer: the keys and values of several layers take turns, so that L2 does not
// hold them.
type attendBench struct {
	layers int
	kv     driver.Ptr // random numbers
	q, out driver.Ptr
	k, v   driver.Ptr // rows that are to be stored
	norm   driver.Ptr // weights of a head
	angles driver.Ptr // of the first positions
}

// attendTypes are the types of keys and values that are measured.
var attendTypes = []backend.KVType{backend.KVBF16, backend.KVInt8}

// newAttendBench makes room for slots of bf16 keys and values, and for rows of queries.
func newAttendBench(m meter, layers, slots, rows int) *attendBench {
	m.Helper()
	b := &attendBench{layers: layers}
	a := b.shape(backend.KVBF16)
	data := make([]byte, 4<<20)
	normalsBF16(data, rand.New(rand.NewPCG(1, 1)), 1)
	n := 4 * rows * a.qHeads * a.dim
	b.q, b.out = m.filled(n, data), m.alloc(n)
	b.norm = m.filled(4*a.dim, data)
	b.k, b.v = m.filled(4*rows*a.kvHeads*a.dim, data), m.filled(4*rows*a.kvHeads*a.dim, data)
	turns := &bed{d: m.d}
	b.angles = turns.angles(drawnAngles(a.dim/2), []int32{0}).list
	m.Cleanup(turns.free)
	pages := slots / pageSlots
	b.kv = m.filled(pages*pageBytes(backend.KeysLayout(a.layers, a.kvHeads, a.dim, a.kv, 1)), data)
	m.Cleanup(func() {
		if err := m.d.freeParts(); err != nil {
			m.Error(err)
		}
	})
	return b
}

func (b *attendBench) shape(t backend.KVType) attention {
	return attention{qHeads: 32, kvHeads: 8, dim: 128, scale: float32(1 / math.Sqrt(128)), kv: t, layers: b.layers}
}

// step makes a step block of spans of rows rows behind base others.
func (b *attendBench) step(m meter, a attention, spans, base, rows int) (driver.Ptr, stepShape) {
	l := backend.KeysLayout(a.layers, a.kvHeads, a.dim, a.kv, base+rows)
	pages := (l.Slots + pageSlots - 1) / pageSlots
	v := &stepValues{rows: spans * rows, positions: make([]int32, spans*rows)}
	for i := range spans {
		var list []driver.Ptr
		for j := range pages {
			list = append(list, b.kv+driver.Ptr((i*pages+j)*pageBytes(l)))
		}
		v.spans = append(v.spans, backend.Span{Storage: storageOn(l, list), Base: base, First: i * rows, Rows: rows})
	}
	shape := stepShape{bucket: rowBucket(v.rows), spans: powerOfTwo(spans), pages: spans * pages}
	p, block := m.alloc(shape.layout().size), make([]byte, shape.layout().size)
	v.write(block, shape, p)
	m.check(m.d.ctx.Upload(p, block))
	return p, shape
}

// BenchmarkDecodeAttention measures decode attention of a layer by units and
// queries of a block, and the rate at which keys and values are read. It takes 23 GB.
func BenchmarkDecodeAttention(b *testing.B) {
	m := benchDevice(b)
	a := newAttendBench(m, 20, 8*32768+8*64, 8*32)
	for _, t := range attendTypes {
		m.run("kv", fmt.Sprint(t), func(m meter) {
			for _, context := range []int{512, 2048, 4096, 32768} {
				m.run("context", fmt.Sprint(context), func(m meter) {
					for _, spans := range []int{1, 8} {
						for _, rows := range []int{1, 8, 16, 32} {
							m.run("rows", fmt.Sprintf("%dx%d", spans, rows), func(m meter) { a.decode(m, t, context, spans, rows) })
						}
					}
				})
			}
		})
	}
}

func (b *attendBench) decode(m meter, t backend.KVType, context, spans, rows int) {
	a, d := b.shape(t), m.d
	step, shape := b.step(m, a, spans, context, rows)
	chunks := powerOfTwo((context + rows + chunkSlots - 1) / chunkSlots)
	l := backend.KeysLayout(1, a.kvHeads, a.dim, a.kv, 1)
	bytes := int(float64(spans*(context+rows)) * float64(l.BytesPerToken()))
	by := func(name string, split attendSplit) {
		m.run("by", name, func(m meter) {
			_, err := d.roomForParts(attendRoom(shape.bucket, a.qHeads, a.dim, chunks, split.units))
			m.check(err)
			m.moved(bytes, m.graph(b.layers, func(layer int) {
				d.attendBy(split, 0, b.out, b.q, a, step, layer, shape.bucket, rows, shape.spans, chunks)
			}))
		})
	}
	by("chosen", d.splitOf(a.qHeads, shape.spans, chunks, rows))
	for _, split := range []attendSplit{{1, 16}, {1, 32}, {1, 64}, {4, 16}, {4, 32}, {4, 64}, {16, 32}, {16, 64}} {
		by(fmt.Sprintf("%d:%d", split.units, split.queries), split)
	}
	if d.hopperAttends(a) {
		m.run("by", "grouped", func(m meter) {
			m.moved(bytes, m.graph(b.layers, func(layer int) {
				d.attendFlash(flashGrouped(), 0, b.out, b.q, a, step, layer, shape.bucket, shape.spans, rows)
			}))
		})
	}
}

// BenchmarkPrefillAttention measures prefill attention of a layer from an empty
// context on, by kernel.
func BenchmarkPrefillAttention(b *testing.B) {
	m := benchDevice(b)
	a := newAttendBench(m, 20, 8192, 8192)
	for _, t := range attendTypes {
		m.run("kv", fmt.Sprint(t), func(m meter) {
			for _, rows := range []int{512, 2048, 8192} {
				m.run("rows", fmt.Sprint(rows), func(m meter) { a.prefill(m, t, rows) })
			}
		})
	}
}

func (b *attendBench) prefill(m meter, t backend.KVType, rows int) {
	a := b.shape(t)
	step, shape := b.step(m, a, 1, 0, rows)
	variants := []flashVariant{flashPlain(a)}
	if m.d.hopperAttends(a) {
		variants = append(variants, flashHopper())
	} else if m.d.flash.refused != nil {
		m.Log(m.d.flash.refused)
	}
	for _, v := range variants {
		m.run("by", v.name, func(m meter) {
			seconds := m.graph(b.layers, func(layer int) {
				m.d.attendFlash(v, 0, b.out, b.q, a, step, layer, shape.bucket, shape.spans, rows)
			})
			m.multiplied(2*float64(rows)*float64(rows)*float64(a.qHeads*a.dim), seconds) // two products, half of them masked
		})
	}
}

// BenchmarkRotateStore measures the norm and rotation of a layer's heads and the
// storing of keys and values.
func BenchmarkRotateStore(b *testing.B) {
	m := benchDevice(b)
	a := newAttendBench(m, 20, 2048, 2048)
	for _, t := range attendTypes {
		m.run("kv", fmt.Sprint(t), func(m meter) {
			for _, rows := range []int{1, 16, 128, 2048} {
				m.run("rows", fmt.Sprint(rows), func(m meter) { a.rotate(m, t, rows) })
			}
		})
	}
}

func (b *attendBench) rotate(m meter, t backend.KVType, rows int) {
	a := b.shape(t)
	step, shape := b.step(m, a, 1, 0, rows)
	h := rotation{qHeads: a.qHeads, kvHeads: a.kvHeads, dim: a.dim, pairs: a.dim / 2, angles: b.angles, qNorm: b.norm, kNorm: b.norm, eps: 1e-6, kv: a.kv, layers: a.layers}
	m.graph(b.layers, func(layer int) { m.d.rotateStore(b.q, b.k, b.v, b.out, h, step, layer, shape.bucket) })
}

// tinyAttention is the turn of all three in [TestBenchmarks].
func tinyAttention(m meter) {
	b := newAttendBench(m, 2, 192, 64)
	b.decode(m, backend.KVInt8, 70, 1, 1)
	b.prefill(m, backend.KVInt8, 33)
	b.rotate(m, backend.KVInt8, 3)
}
