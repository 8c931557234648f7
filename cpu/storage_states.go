package cpu

import (
	"unsafe"

	"windrow/backend"
)

// stateColumns is how many value columns of a head one work item of the recurrence
// takes. A block of 64 is 32 KB at a key dimension of 128, and its sums are enough
// chains to keep the multipliers of AVX2 and AVX-512 busy.
const stateColumns = 64

// states are those of all layers of one sequence.
type states struct{ layers []state }

// state is that of a layer. Rows of the log and before the convolution are found by
// index, modulo how many there are.
type state struct {
	// s holds, for each value head, blocks of stateColumns columns, the last one maybe
	// narrower: [KeyDim, columns] each.
	s []float32
	// Of the log: keys [rows, Keys], deltas [rows, Values], decays [rows, ValueHeads].
	keys, deltas, decays []float32
	// raw are rows before the convolution [rows, Channels]: queries, keys, values.
	raw []float32
}

// statePool makes states of a layout.
type statePool struct{ layout backend.Layout }

func (p *statePool) Take() (*states, error) {
	room := make([]float32, p.layout.StateBytes()/4)
	adviseHugePages(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(room))), 4*len(room)))
	cut := func(n int) []float32 {
		part := room[:n:n]
		room = room[n:]
		return part
	}
	y, rows := new(states), p.layout.LogRows
	for _, s := range p.layout.States() {
		y.layers = append(y.layers, state{
			s: cut(s.Size()), keys: cut(rows * s.Keys()), deltas: cut(rows * s.Values()), decays: cut(rows * s.ValueHeads),
			raw: cut(s.RawRows(rows) * s.Channels()),
		})
	}
	return y, nil
}

func (p *statePool) Give(*states) {} // nobody has them any more

// stateBlock is where a block of columns of a head's state lies, and how wide it is.
func stateBlock(s *backend.StateShape, head, block int) (from, to, columns int) {
	columns = min(stateColumns, s.ValueDim-block*stateColumns)
	from = head*s.KeyDim*s.ValueDim + s.KeyDim*block*stateColumns
	return from, from + s.KeyDim*columns, columns
}
