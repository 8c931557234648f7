package cuda

import (
	"encoding/binary"

	"windrow/backend"
	"windrow/cuda/driver"
)

// stepShape fixes where everything lies in a step block. Steps of one shape
// share their graphs.
type stepShape struct {
	bucket int // rows, rounded up
	spans  int // capacities
	pages  int
}

// Sizes of the structs in gpu.cuh.
const (
	stepHeader = 32 + 6*8
	spanBytes  = 8 * 4
)

// stepLayout holds byte offsets into the block.
type stepLayout struct {
	tokens, positions, spanOf, span, pages, want, size int
}

func (s stepShape) layout() stepLayout {
	at := (stepHeader + 15) &^ 15
	next := func(bytes int) int {
		here := at
		at = (at + bytes + 15) &^ 15
		return here
	}
	return stepLayout{
		tokens:    next(4 * s.bucket),
		positions: next(4 * s.bucket),
		spanOf:    next(4 * s.bucket),
		span:      next(spanBytes * s.spans),
		pages:     next(8 * s.pages),
		want:      next(4 * s.bucket),
		size:      at,
	}
}

// stepValues is what changes from step to step.
type stepValues struct {
	rows              int
	tokens, positions []int32
	spans             []backend.Span
	want              []int32 // packed numbers of the wanted rows
	top               int
	limit, except     int32
}

// write fills a block that will lie at address base on the device.
func (v *stepValues) write(block []byte, s stepShape, base driver.Ptr) {
	l := s.layout()
	le := binary.LittleEndian
	u32 := func(at int, x uint32) { le.PutUint32(block[at:], x) }
	u32(0, uint32(v.rows))
	u32(4, uint32(len(v.spans)))
	v.writeWanted(block, l)
	for i, at := range []int{l.tokens, l.positions, l.spanOf, l.span, l.pages, l.want} {
		le.PutUint64(block[32+8*i:], uint64(base)+uint64(at))
	}
	for i, t := range v.tokens {
		u32(l.tokens+4*i, uint32(t))
	}
	for i, p := range v.positions {
		u32(l.positions+4*i, uint32(p))
	}
	page := 0
	for i, sp := range v.spans {
		for r := sp.First; r < sp.First+sp.Rows; r++ {
			u32(l.spanOf+4*r, uint32(i))
		}
		kv := sp.Storage.(*storage)
		y := &kv.layout
		for j, x := range []int{sp.First, sp.Rows, sp.Base, y.Slots, y.Window, y.Keep, page, 0} {
			u32(l.span+i*spanBytes+4*j, uint32(x))
		}
		for j := range (slotsOf(sp) + pageSlots - 1) / pageSlots {
			le.PutUint64(block[l.pages+8*page:], uint64(kv.At(j)))
			page++
		}
	}
}

// writeWanted writes only what the head reads, into a block that has the rest.
func (v *stepValues) writeWanted(block []byte, l stepLayout) {
	for i, x := range []int{len(v.want), v.top, int(v.limit), int(v.except)} {
		binary.LittleEndian.PutUint32(block[8+4*i:], uint32(x))
	}
	for i, r := range v.want {
		binary.LittleEndian.PutUint32(block[l.want+4*i:], uint32(r))
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
