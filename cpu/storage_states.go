package cpu

import (
	"errors"
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

// begin sees to pages, and to states where the program has some, for some rows behind
// base indices. Marks go where there is no memory.
func (c *storage) begin(base, rows int, recurs bool) error {
	for {
		err := c.Writable(base, base+rows)
		if err == nil && recurs && c.states != nil {
			err = c.states.Begin(base, rows)
		}
		if lacks := (*backend.MemoryError)(nil); c.states == nil || !errors.As(err, &lacks) || !c.b.marks.Evict() {
			return err
		}
	}
}

// Bytes is what pages and states take.
func (c *storage) Bytes() int64 {
	n := c.Table.Bytes()
	if c.states != nil {
		n += c.states.Bytes()
	}
	return n
}

// Reserve makes room for the first indices, or takes nothing.
func (c *storage) Reserve(tokens int) error {
	if c.states == nil {
		return c.Table.Reserve(tokens)
	}
	// Pages last: what is refused must take nothing.
	undo, err := c.states.Reserve(tokens)
	if err != nil {
		return err
	}
	if err := c.Table.Reserve(tokens); err != nil {
		undo()
		return err
	}
	return nil
}

// Reach is how far pages and states go back, both.
func (c *storage) Reach(n, base int) int {
	n = c.Table.Reach(n, base)
	if c.states == nil {
		return n
	}
	return c.Table.Reach(c.states.Reach(n), base)
}

// Truncate holds the states behind n indices until the next forward.
func (c *storage) Truncate(n int) {
	if c.states != nil {
		c.states.Truncate(n)
	}
}

// Mark keeps the states behind base indices.
func (c *storage) Mark(base int) {
	if c.states != nil {
		c.states.Mark(base)
	}
}

// Close gives pages and states up.
func (c *storage) Close() {
	c.Table.Close()
	if c.states != nil {
		c.states.Close()
	}
}
