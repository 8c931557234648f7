package launch

import (
	"encoding/binary"

	"windrow/backend"
	"windrow/cuda/driver"
)

// PageSlots is how many slots of all layers one page holds.
const PageSlots = backend.PageTokens

// StepShape fixes where everything lies in a step block. Steps of one shape
// share their graphs.
type StepShape struct {
	Bucket int // rows, rounded up
	Spans  int // capacities
	Pages  int
	States int // recurrent layers
}

// Sizes of the structs in gpu.cuh, and of those in delta.cu.
const (
	spanBytes   = 8 * 4
	statesBytes = 2*8 + 2*4

	// The header: numbers, addresses, the first span, its states, addresses of recurrent layers.
	stepSpan   = 32 + 6*8
	stepStates = stepSpan + spanBytes
	stepHeader = stepStates + statesBytes + 2*8
)

// stepLayout holds byte offsets into the block.
type stepLayout struct {
	tokens, positions, spanOf, span, pages, want, states, folded, size int
}

func (s StepShape) layout() stepLayout {
	at := (stepHeader + 15) &^ 15
	next := func(bytes int) int {
		here := at
		at = (at + bytes + 15) &^ 15
		return here
	}
	return stepLayout{
		tokens:    next(4 * s.Bucket),
		positions: next(4 * s.Bucket),
		spanOf:    next(4 * s.Bucket),
		span:      next(spanBytes * s.Spans),
		pages:     next(8 * s.Pages),
		want:      next(4 * s.Bucket),
		states:    next(statesBytes * min(s.States, 1) * s.Spans),
		folded:    next(4 * s.States * s.Spans),
		size:      at,
	}
}

// stepArrays is where the arrays of a block lie on the device, as far as its rows and spans say.
func stepArrays(step driver.Ptr, bucket, spans int) (span, positions, pages driver.Ptr) {
	l := StepShape{Bucket: bucket, Spans: spans}.layout()
	return step + driver.Ptr(l.span), step + driver.Ptr(l.positions), step + driver.Ptr(l.pages)
}

// Bytes is the size of a block.
func (s StepShape) Bytes() int { return s.layout().size }

// pagesOnDevice is storage whose pages lie on the device.
type pagesOnDevice interface{ At(page int) driver.Ptr }

// StateStep is what a forward does with the states of a storage: where they are read
// (0: there are none yet) and written, and from which index on rows are logged.
type StateStep struct {
	From, To driver.Ptr
	Settle   int
	Folded   func(layer int) int // how many indices a layer's state in From covers
}

// statesOnDevice is storage whose states do.
type statesOnDevice interface{ StateStep() StateStep }

// StepValues is what changes from step to step.
type StepValues struct {
	Rows              int
	Tokens, Positions []int32
	Spans             []backend.Span
	Want              []int32 // packed numbers of the wanted rows
	Top               int
	Limit, Except     int32
}

// Write fills a block that will lie at address base on the device.
func (v *StepValues) Write(block []byte, s StepShape, base driver.Ptr) {
	l := s.layout()
	le := binary.LittleEndian
	u32 := func(at int, x uint32) { le.PutUint32(block[at:], x) }
	u32(0, uint32(v.Rows))
	u32(4, uint32(len(v.Spans)))
	v.WriteWanted(block, s)
	for i, at := range []int{l.tokens, l.positions, l.spanOf, l.span, l.pages, l.want} {
		le.PutUint64(block[32+8*i:], uint64(base)+uint64(at))
	}
	for i, at := range []int{l.states, l.folded} {
		le.PutUint64(block[stepStates+statesBytes+8*i:], uint64(base)+uint64(at))
	}
	for i, t := range v.Tokens {
		u32(l.tokens+4*i, uint32(t))
	}
	for i, p := range v.Positions {
		u32(l.positions+4*i, uint32(p))
	}
	if len(v.Positions) > 0 {
		u32(24, uint32(v.Positions[0]))
	}
	page := 0
	for i, sp := range v.Spans {
		for r := sp.First; r < sp.First+sp.Rows; r++ {
			u32(l.spanOf+4*r, uint32(i))
		}
		kv, y := sp.Storage.(pagesOnDevice), sp.Storage.Layout()
		for j, x := range []int{sp.First, sp.Rows, sp.Base, y.Slots, y.Window, y.Keep, page, 0} {
			u32(l.span+i*spanBytes+4*j, uint32(x))
		}
		for j := range (SlotsOf(sp) + PageSlots - 1) / PageSlots {
			le.PutUint64(block[l.pages+8*page:], uint64(kv.At(j)))
			page++
		}
		if s.States > 0 {
			x := sp.Storage.(statesOnDevice).StateStep()
			le.PutUint64(block[l.states+i*statesBytes:], uint64(x.From))
			le.PutUint64(block[l.states+i*statesBytes+8:], uint64(x.To))
			u32(l.states+i*statesBytes+16, uint32(x.Settle))
			u32(l.states+i*statesBytes+20, uint32(y.LogRows))
			for layer := range s.States {
				u32(l.folded+4*(layer*len(v.Spans)+i), uint32(x.Folded(layer)))
			}
		}
	}
	copy(block[stepSpan:stepStates], block[l.span:l.pages])
	copy(block[stepStates:stepStates+statesBytes], block[l.states:l.folded])
}

// WriteWanted writes only what the head reads, into a block that has the rest.
func (v *StepValues) WriteWanted(block []byte, s StepShape) {
	l := s.layout()
	for i, x := range []int{len(v.Want), v.Top, int(v.Limit), int(v.Except)} {
		binary.LittleEndian.PutUint32(block[8+4*i:], uint32(x))
	}
	for i, r := range v.Want {
		binary.LittleEndian.PutUint32(block[l.want+4*i:], uint32(r))
	}
}

// RowBucket rounds a row count up, so that few graphs serve all of them. Up to 8 rows powers of two do:
// rows that pad a bucket are normed, copied and multiplied like others.
func RowBucket(rows int) int {
	switch {
	case rows <= 4:
		return PowerOfTwo(rows)
	case rows <= 32:
		return (rows + 7) &^ 7
	case rows <= 48:
		return 48
	case rows <= 64:
		return 64
	case rows <= 96:
		return 96
	}
	return (rows + 127) &^ 127
}

// PowerOfTwo rounds up.
func PowerOfTwo(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

// SlotsOf is how many slots of its storage a span's rows may see.
func SlotsOf(s backend.Span) int {
	n := s.Base + s.Rows
	if l := s.Storage.Layout(); l.Window != 0 {
		n = min(n, l.Slots)
	}
	return n
}
