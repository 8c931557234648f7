package launch

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"windrow/backend"
	"windrow/cuda/driver"
	"windrow/cuda/measure"
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
	angles Table      // of the first positions
}

// attendTypes are the types of keys and values that are measured.
var attendTypes = []backend.KVType{backend.KVBF16, backend.KVInt8}

// newAttendBench makes room for slots of bf16 keys and values, and for rows of queries.
func newAttendBench(m meter, layers, slots, rows int) *attendBench {
	m.Helper()
	b := &attendBench{layers: layers}
	a := b.shape(backend.KVBF16)
	data := make([]byte, 4<<20)
	measure.NormalsBF16(data, rand.New(rand.NewPCG(1, 1)), 1)
	n := 4 * rows * a.QHeads * a.Dim
	b.q, b.out = m.Filled(n, data), m.Alloc(n)
	b.norm = m.Filled(4*a.Dim, data)
	b.k, b.v = m.Filled(4*rows*a.KVHeads*a.Dim, data), m.Filled(4*rows*a.KVHeads*a.Dim, data)
	turns := &bed{d: m.D}
	b.angles = turns.angles(drawnAngles(a.Dim/2), []int32{0}).Table()
	m.Cleanup(turns.free)
	pages := slots / PageSlots
	b.kv = m.Filled(pages*pageBytes(backend.KeysLayout(a.Layers, a.KVHeads, a.Dim, a.KV, 1)), data)
	m.Cleanup(func() {
		if err := m.D.freeParts(); err != nil {
			m.Error(err)
		}
	})
	return b
}

func (b *attendBench) shape(t backend.KVType) Attention {
	return Attention{QHeads: 32, KVHeads: 8, Dim: 128, Scale: float32(1 / math.Sqrt(128)), KV: t, Layers: b.layers}
}

// step makes a step block of spans of rows rows behind base others.
func (b *attendBench) step(m meter, a Attention, spans, base, rows int) (driver.Ptr, StepShape) {
	l := backend.KeysLayout(a.Layers, a.KVHeads, a.Dim, a.KV, base+rows)
	pages := (l.Slots + PageSlots - 1) / PageSlots
	v := &StepValues{Rows: spans * rows, Positions: make([]int32, spans*rows)}
	for i := range spans {
		var list []driver.Ptr
		for j := range pages {
			list = append(list, b.kv+driver.Ptr((i*pages+j)*pageBytes(l)))
		}
		v.Spans = append(v.Spans, backend.Span{Storage: storageOn(l, list), Base: base, First: i * rows, Rows: rows})
	}
	shape := StepShape{Bucket: RowBucket(v.Rows), Spans: PowerOfTwo(spans), Pages: spans * pages}
	p, block := m.Alloc(shape.Bytes()), make([]byte, shape.Bytes())
	v.Write(block, shape, p)
	m.Check(m.D.Context.Upload(p, block))
	return p, shape
}

// BenchmarkDecodeAttention measures decode attention of a layer by units and
// queries of a block, and the rate at which keys and values are read. It takes 23 GB.
func BenchmarkDecodeAttention(b *testing.B) {
	m := benchDevice(b)
	a := newAttendBench(m, 20, 8*32768+8*64, 8*32)
	for _, t := range attendTypes {
		m.Run("kv", fmt.Sprint(t), func(m meter) {
			for _, context := range []int{64, 512, 896, 2048, 4096, 32768} {
				m.Run("context", fmt.Sprint(context), func(m meter) {
					for _, spans := range []int{1, 8} {
						for _, rows := range []int{1, 8, 16, 32} {
							m.Run("rows", fmt.Sprintf("%dx%d", spans, rows), func(m meter) { a.decode(m, t, context, spans, rows) })
						}
					}
				})
			}
		})
	}
}

func (b *attendBench) decode(m meter, t backend.KVType, context, spans, rows int) {
	a, d := b.shape(t), m.D
	step, shape := b.step(m, a, spans, context, rows)
	chunks := PowerOfTwo((context + rows + ChunkSlots - 1) / ChunkSlots)
	l := backend.KeysLayout(1, a.KVHeads, a.Dim, a.KV, 1)
	bytes := int(float64(spans*(context+rows)) * float64(l.BytesPerToken()))
	by := func(name string, split attendSplit) {
		m.Run("by", name, func(m meter) {
			_, err := d.roomForParts(attendRoom(shape.Bucket, a.QHeads, a.Dim, chunks, split.units))
			m.Check(err)
			m.Moved(bytes, graph(m, b.layers, func(layer int) {
				d.attendBy(split, 0, b.out, b.q, 0, a, step, layer, shape.Bucket, rows, shape.Spans, chunks)
			}))
		})
	}
	by("chosen", d.decodeSplit(a, rows, shape.Spans, chunks))
	for _, units := range []int{1, 4, 16} {
		for _, queries := range []int{16, 32, 64} {
			by(fmt.Sprintf("%d:%d", units, queries), attendSplit{units: units, queries: queries})
		}
	}
	if d.hopperDecodes(a) {
		by("4:hopper", attendSplit{4, attendQueries, true})
		by("16:hopper", attendSplit{16, attendQueries, true})
	}
	if a.forHopper() && d.hopperAttends(a) {
		m.Run("by", "grouped", func(m meter) {
			m.Moved(bytes, graph(m, b.layers, func(layer int) {
				d.attendFlash(flashGrouped(), 0, b.out, b.q, 0, a, step, layer, shape.Bucket, shape.Spans, rows)
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
		m.Run("kv", fmt.Sprint(t), func(m meter) {
			for _, rows := range []int{512, 2048, 8192} {
				m.Run("rows", fmt.Sprint(rows), func(m meter) {
					for _, dim := range []int{128, 256} {
						m.Run("dim", fmt.Sprint(dim), func(m meter) { a.prefill(m, t, dim, rows) })
					}
				})
			}
		})
	}
}

func (b *attendBench) prefill(m meter, t backend.KVType, dim, rows int) {
	a := b.shape(t)
	a.QHeads, a.KVHeads, a.Dim = a.QHeads*a.Dim/dim, a.KVHeads*a.Dim/dim, dim // as many numbers
	step, shape := b.step(m, a, 1, 0, rows)
	variants := []flashVariant{flashPlain(a)}
	if m.D.hopperAttends(a) {
		variants = append(variants, flashHopper(dim))
	} else if err := m.D.flash.of(dim).refused; err != nil {
		m.Log(err)
	}
	for _, v := range variants {
		m.Run("by", v.name, func(m meter) {
			seconds := graph(m, b.layers, func(layer int) {
				m.D.attendFlash(v, 0, b.out, b.q, 0, a, step, layer, shape.Bucket, shape.Spans, rows)
			})
			m.Multiplied(2*float64(rows)*float64(rows)*float64(a.QHeads*a.Dim), seconds) // two products, half of them masked
		})
	}
}

// BenchmarkRotateStore measures the norm and rotation of a layer's heads and the
// storing of keys and values.
func BenchmarkRotateStore(b *testing.B) {
	m := benchDevice(b)
	a := newAttendBench(m, 20, 2048, 2048)
	for _, t := range attendTypes {
		m.Run("kv", fmt.Sprint(t), func(m meter) {
			for _, rows := range []int{1, 16, 128, 256, 512, 2048} {
				m.Run("rows", fmt.Sprint(rows), func(m meter) {
					defer func() { m.D.Tuning = Tuning{} }()
					for _, m.D.Tuning.rotateHeads = range []int{0, 1, 2} {
						m.Run("heads", fmt.Sprint(m.D.Tuning.rotateHeads), func(m meter) { a.rotate(m, t, rows) })
					}
				})
			}
		})
	}
}

func (b *attendBench) rotate(m meter, t backend.KVType, rows int) {
	a := b.shape(t)
	step, shape := b.step(m, a, 1, 0, rows)
	h := Rotation{QHeads: a.QHeads, KVHeads: a.KVHeads, Dim: a.Dim, Pairs: a.Dim / 2, Angles: b.angles, QNorm: b.norm, KNorm: b.norm, Eps: 1e-6, KV: a.KV, Layers: a.Layers, NarrowOnly: true}
	graph(m, b.layers, func(layer int) { m.D.RotateStore(b.q, b.k, b.v, b.out, h, step, layer, shape.Bucket) })
}

// tinyAttention is the turn of all three in [TestBenchmarks].
func tinyAttention(m meter) {
	b := newAttendBench(m, 2, 192, 64)
	b.decode(m, backend.KVInt8, 70, 1, 1)
	b.prefill(m, backend.KVInt8, 128, 33)
	b.rotate(m, backend.KVInt8, 3)
}
