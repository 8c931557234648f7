package backend

import "fmt"

// StateShape is the shape of a gated DeltaNet layer (arXiv 2412.06464): what it keeps is
// a matrix [KeyDim, ValueDim] for each value head, and the last rows before its
// convolution.
type StateShape struct {
	// KeyHeads divides ValueHeads.
	KeyHeads, ValueHeads int
	KeyDim, ValueDim     int // of a head
	Conv                 int // taps of the convolution, the row's own among them
	// Tiled says which key head a value head has: see KeyHead.
	Tiled bool
}

// KeyHead is the key head whose query and key a value head uses: several value heads of
// one follow each other, or, tiled, lie KeyHeads apart.
func (s StateShape) KeyHead(valueHead int) int {
	if s.Tiled {
		return valueHead % s.KeyHeads
	}
	return valueHead / s.Group()
}

// MaxConv bounds the taps of a convolution; published models have 4.
const MaxConv = 8

// Channels is the width of the convolution: all queries, all keys, all values.
func (s StateShape) Channels() int { return 2*s.Keys() + s.Values() }

// Keys is the width of all keys, and of all queries.
func (s StateShape) Keys() int { return s.KeyHeads * s.KeyDim }

// Values is the width of all values.
func (s StateShape) Values() int { return s.ValueHeads * s.ValueDim }

// Group is how many value heads use one key head.
func (s StateShape) Group() int { return s.ValueHeads / s.KeyHeads }

// Size is the number of elements of a layer's state.
func (s StateShape) Size() int { return s.ValueHeads * s.KeyDim * s.ValueDim }

// LogSize is the number of elements that are logged of a row: its keys, its deltas, and
// the decay of each value head.
func (s StateShape) LogSize() int { return s.Keys() + s.Values() + s.ValueHeads }

// RawRows is how many rows before the convolution are kept beside a log of so many rows.
func (s StateShape) RawRows(logRows int) int { return logRows + s.Conv - 1 }

// Bytes is what a layer keeps of a sequence, all in f32: the state, a log, and rows
// before the convolution.
func (s StateShape) Bytes(logRows int) int64 {
	return 4 * (int64(s.Size()) + int64(logRows)*int64(s.LogSize()) + int64(s.RawRows(logRows))*int64(s.Channels()))
}

// Check refuses shapes that no layer has.
func (s StateShape) Check() error {
	const most = 1 << 16 // so that no product of three overflows
	for _, n := range []int{s.KeyHeads, s.ValueHeads, s.KeyDim, s.ValueDim} {
		if n <= 0 || n > most {
			return fmt.Errorf("a state of %d key heads of %d and %d value heads of %d: want numbers from 1 to %d", s.KeyHeads, s.KeyDim, s.ValueHeads, s.ValueDim, most)
		}
	}
	switch {
	case s.ValueHeads%s.KeyHeads != 0:
		return fmt.Errorf("a state of %d value heads for %d key heads: want a multiple", s.ValueHeads, s.KeyHeads)
	case s.Conv < 1 || s.Conv > MaxConv:
		return fmt.Errorf("a convolution of %d taps: want 1 to %d", s.Conv, MaxConv)
	}
	return nil
}

// Settle is up to which index a forward of some rows behind base adds to the states:
// rows from there on are logged, and may still be taken back.
func (l Layout) Settle(base, rows int) int { return base + max(0, rows-l.LogRows) }

// Recurrent reports whether some layers keep a state.
func (l Layout) Recurrent() bool {
	for _, s := range l.Layers {
		if s.Kind == StoreState {
			return true
		}
	}
	return false
}

// States lists the shapes of the layers with a state. A layer's place among them is
// StateLayer's.
func (l Layout) States() (list []StateShape) {
	for _, s := range l.Layers {
		if s.Kind == StoreState {
			list = append(list, s.State)
		}
	}
	return list
}
