package backend

import (
	"errors"
	"fmt"
)

// Place is a way back to the states of a sequence: behind any number of indices of From
// to End.
type Place struct{ From, End int }

// StateStorage is a Storage whose states can be copied, as pages are. Where storage of
// layers with a state is none, what it holds cannot be kept outside of the device.
type StateStorage interface {
	Storage
	// Places lists where states can be had behind at most base indices, in rising order
	// of End, no two with the same.
	Places(base int) []Place
	// ExportStates copies the states of a place, in the form that Layout.ExportedStates
	// describes. It returns ErrNoPlace where they went in the meantime.
	ExportStates(p Place, dst []byte) error
	// ImportStates is its reverse, into storage that has no states yet, but the pages of
	// all indices before End: bits are kept. A forward may stand behind any index of the
	// place then. It returns a *MemoryError where there is too little.
	ImportStates(p Place, src []byte) error
}

// ErrNoPlace is the export of states that are not there, or no more.
var ErrNoPlace = errors.New("there are no such states")

// Check refuses places that no storage of a layout has.
func (p Place) Check(l Layout) error {
	if p.From < 0 || p.End < 1 || p.From > p.End || p.End-p.From > l.LogRows {
		return fmt.Errorf("states of indices %d to %d: want 0 to %d of them", p.From, p.End, l.LogRows)
	}
	return nil
}

// CheckStates refuses what is not the exported states of a place.
func (l Layout) CheckStates(p Place, data []byte) error {
	if !l.Recurrent() {
		return errors.New("no layer has a state")
	}
	if err := p.Check(l); err != nil {
		return err
	}
	if want := l.ExportedStates(p); int64(len(data)) != want {
		return fmt.Errorf("states of %d bytes, want %d", len(data), want)
	}
	return nil
}

// ExportedStates is the size of the exported states of a place: for each layer with a
// state the matrices as of index From [ValueHeads, KeyDim, ValueDim], of each index from
// there to End its logged keys [Keys], deltas [Values] and decays [ValueHeads], and the
// rows before the convolution [Channels] of the indices that those, and what follows,
// look at: from RawFrom to End. All is f32, little-endian.
func (l Layout) ExportedStates(p Place) (n int64) {
	for _, s := range l.States() {
		n += s.Exported(p)
	}
	return n
}

// Exported is what one layer's are of Layout.ExportedStates.
func (s StateShape) Exported(p Place) int64 {
	return 4 * (int64(s.Size()) + int64(p.End-p.From)*int64(s.LogSize()) + int64(p.End-s.RawFrom(p.From))*int64(s.Channels()))
}

// RawFrom is the first row before the convolution that a row at an index looks at.
func (s StateShape) RawFrom(index int) int { return max(0, index-s.Conv+1) }
