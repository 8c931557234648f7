package paging

import (
	"errors"

	"windrow/backend"
)

// Sequence is all that a backend stores of one sequence: pages, and states where layers
// have some.
type Sequence[P, V any] struct {
	*Table[P]
	States *States[V] // nil: no layer has some
}

// Fork is the table's and the states', or takes nothing.
func (s Sequence[P, V]) Fork(n, slots int) (y Sequence[P, V], err error) {
	t, err := s.Table.Fork(n, slots)
	if err != nil {
		return y, err
	}
	y.Table = t
	if s.States != nil {
		if y.States, err = s.States.Fork(t.Layout(), n); err != nil {
			t.Close()
			return Sequence[P, V]{}, err
		}
	}
	return y, nil
}

// Writer makes the pages of indices writable: a Table, or what does more than one.
type Writer interface {
	Writable(from, to int) error
}

// Begin sees to pages by w, and with states to these, for some rows behind base indices.
// Marks go where there is no memory.
func (s Sequence[P, V]) Begin(w Writer, base, rows int, states bool) error {
	for {
		err := w.Writable(base, base+rows)
		if err == nil && states && s.States != nil {
			err = s.States.Begin(base, rows)
		}
		if err == nil || s.States == nil || !lacksMemory(err) || !s.States.marks.Evict() {
			return err
		}
	}
}

// lacksMemory stands apart because what errors.As sets is allocated.
func lacksMemory(err error) bool {
	lacks := (*backend.MemoryError)(nil)
	return errors.As(err, &lacks)
}

// Bytes is what pages and states take.
func (s Sequence[P, V]) Bytes() int64 {
	n := s.Table.Bytes()
	if s.States != nil {
		n += s.States.Bytes()
	}
	return n
}

// Reserve makes room for the first indices, or takes nothing.
func (s Sequence[P, V]) Reserve(tokens int) error { return s.ReserveBy(tokens, s.Table.Reserve) }

// ReserveBy is Reserve with pages that are reserved by a function.
func (s Sequence[P, V]) ReserveBy(tokens int, pages func(tokens int) error) error {
	if s.States == nil {
		return pages(tokens)
	}
	// Pages last: what is refused must take nothing.
	undo, err := s.States.Reserve(tokens)
	if err != nil {
		return err
	}
	if err := pages(tokens); err != nil {
		undo()
		return err
	}
	return nil
}

// Reach is how far pages and states go back, both.
func (s Sequence[P, V]) Reach(n, base int) int {
	n = s.Table.Reach(n, base)
	if s.States == nil {
		return n
	}
	return s.Table.Reach(s.States.Reach(n), base)
}

// Truncate holds the states behind n indices until the next forward.
func (s Sequence[P, V]) Truncate(n int) {
	if s.States != nil {
		s.States.Truncate(n)
	}
}

// Mark keeps the states behind base indices.
func (s Sequence[P, V]) Mark(base int) {
	if s.States != nil {
		s.States.Mark(base)
	}
}

// Close gives pages and states up.
func (s Sequence[P, V]) Close() {
	s.Table.Close()
	if s.States != nil {
		s.States.Close()
	}
}
