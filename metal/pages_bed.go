package metal

import (
	"encoding/binary"
	"fmt"
	"math"

	"windrow/backend"
	"windrow/quant"
)

// bedPages are the keys and values of one sequence of a self-test, in the second layer
// of two. What no slot lies in stays NaN, or the bytes 0xff.
type bedPages struct {
	kvView
	keys   backend.Keys
	memory view     // of all pages
	order  []uint32 // what the table says
	known  []bool   // the bytes of memory that something is to be in
}

// pages reserves pages for that many slots of a layout of two layers; they follow one another, or lie the
// other way round, and the first page is not theirs.
func (b *bed) pages(l backend.Layout, slots int, ascend bool) *bedPages {
	plan, n := planKV(l.Keys()), kvPages(slots)
	s := &bedPages{keys: l.Keys(), memory: b.empty((n+1)*plan.page, elemBytes), known: make([]bool, (n+1)*plan.page)}
	for i := range n {
		page := uint32(n - i)
		if ascend {
			page = uint32(1 + i)
		}
		s.order = append(s.order, page)
	}
	s.kvView = plan.view(l, s.memory, b.words(s.order), 1)
	return s
}

// line is n bytes of each line of a part, of a head at a slot.
func (s *bedPages) line(part view, n, head, slot int) []byte {
	at := part.offset - s.memory.offset + int(s.order[slot/pageSlots])*s.page + (head*pageSlots+slot%pageSlots)*n
	for i := range n {
		s.known[at+i] = true
	}
	return s.memory.bytes()[at : at+n]
}

// groups is how many scales a vector has.
func (s *bedPages) groups() int {
	if s.dtype != backend.KVInt8 {
		return 0
	}
	return (s.keys.HeadDim + backend.KVGroup - 1) / backend.KVGroup
}

// put stores the vector of a head.
func (s *bedPages) put(part, scales view, head, slot int, x []float32) {
	line := s.line(part, len(x)*part.elem.size(), head, slot)
	if s.dtype != backend.KVInt8 {
		quant.Blocks(line, dtypeOf(part.elem), x)
		return
	}
	codes, factors := int8Vector(x)
	copy(line, codes)
	line = s.line(scales, 4*s.groups(), head, slot)
	for i, f := range factors {
		binary.LittleEndian.PutUint32(line[4*i:], math.Float32bits(f))
	}
}

// floats reads the vector of a head that is stored in floats.
func (s *bedPages) floats(part view, head, slot int) []float32 {
	n := s.keys.HeadDim
	x := make([]float32, n)
	line := s.line(part, n*part.elem.size(), head, slot)
	quant.Row(x, &backend.Tensor{DType: dtypeOf(part.elem), Shape: []int{n}, Data: line}, 0)
	return x
}

// int8 reads the vector of a head with its scales.
func (s *bedPages) int8(part, scales view, head, slot int) (q []int8, factors []float32) {
	for _, c := range s.line(part, s.keys.HeadDim, head, slot) {
		q = append(q, int8(c))
	}
	line := s.line(scales, 4*s.groups(), head, slot)
	for i := range s.groups() {
		factors = append(factors, math.Float32frombits(binary.LittleEndian.Uint32(line[4*i:])))
	}
	return q, factors
}

// others checks that nothing else was written than lines that were asked for.
func (s *bedPages) others() error {
	for i, c := range s.memory.bytes()[:len(s.known)] {
		if !s.known[i] && c != 0xff {
			return fmt.Errorf("byte %d of page %d was written, which is no line of the span's", i%s.page, i/s.page)
		}
	}
	return nil
}
