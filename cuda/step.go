package cuda

import (
	"encoding/binary"
	"math"

	"windrow/backend"
	"windrow/cuda/driver"
)

// stepShape fixes where everything lies in a step block. Steps of one shape
// share their graphs.
type stepShape struct {
	bucket int // rows, rounded up
	half   int // angles a row
	spans  int // capacities
	pages  int
}

// Sizes of the structs in gpu.cuh.
const (
	stepHeader = 32 + 7*8
	spanBytes  = 8 * 4
)

// stepLayout holds byte offsets into the block.
type stepLayout struct {
	tokens, cos, sin, spanOf, span, pages, want, size int
}

func (s stepShape) layout() stepLayout {
	at := (stepHeader + 15) &^ 15
	next := func(bytes int) int {
		here := at
		at = (at + bytes + 15) &^ 15
		return here
	}
	return stepLayout{
		tokens: next(4 * s.bucket),
		cos:    next(4 * s.bucket * s.half),
		sin:    next(4 * s.bucket * s.half),
		spanOf: next(4 * s.bucket),
		span:   next(spanBytes * s.spans),
		pages:  next(8 * s.pages),
		want:   next(4 * s.bucket),
		size:   at,
	}
}

// stepValues is what changes from step to step.
type stepValues struct {
	rows     int
	tokens   []int32
	cos, sin []float32
	spans    []backend.Span
	want     []int32
	top      int
	limit    int32
	except   int32
}

// write fills a block that will lie at address base on the device.
func (v *stepValues) write(block []byte, s stepShape, base driver.Ptr) {
	l := s.layout()
	le := binary.LittleEndian
	u32 := func(at int, x uint32) { le.PutUint32(block[at:], x) }
	for i, x := range []int{v.rows, len(v.spans), len(v.want), v.top} {
		u32(4*i, uint32(x))
	}
	u32(16, uint32(v.limit))
	u32(20, uint32(v.except))
	for i, at := range []int{l.tokens, l.cos, l.sin, l.spanOf, l.span, l.pages, l.want} {
		le.PutUint64(block[32+8*i:], uint64(base)+uint64(at))
	}
	for i, t := range v.tokens {
		u32(l.tokens+4*i, uint32(t))
	}
	for i, x := range v.cos {
		u32(l.cos+4*i, math.Float32bits(x))
	}
	for i, x := range v.sin {
		u32(l.sin+4*i, math.Float32bits(x))
	}
	for i, r := range v.want {
		u32(l.want+4*i, uint32(r))
	}
	page := 0
	for i, sp := range v.spans {
		for r := sp.First; r < sp.First+sp.Rows; r++ {
			u32(l.spanOf+4*r, uint32(i))
		}
		kv := sp.KV.(*kv)
		y := kv.layout
		for j, x := range []int{sp.First, sp.Rows, sp.Base, y.Slots, y.Window, y.Keep, page, 0} {
			u32(l.span+i*spanBytes+4*j, uint32(x))
		}
		for _, p := range kv.pages[:(slotsOf(sp)+pageSlots-1)/pageSlots] {
			le.PutUint64(block[l.pages+8*page:], uint64(p))
			page++
		}
	}
}

// rowBucket rounds a row count up, so that few graphs serve all of them.
func rowBucket(rows int) int {
	switch {
	case rows <= 1:
		return 1
	case rows <= 32:
		return max(8, (rows+7)&^7)
	case rows <= 48:
		return 48
	case rows <= 64:
		return 64
	case rows <= 96:
		return 96
	}
	return (rows + 127) &^ 127
}

// powerOfTwo rounds up.
func powerOfTwo(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}
