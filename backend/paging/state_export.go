package paging

import (
	"cmp"
	"errors"
	"slices"

	"windrow/backend"
)

// whole reports whether all layers cover the same indices: not so where a forward ended
// in its midst.
func (v *version[V]) whole() bool {
	return !slices.ContainsFunc(v.folded, func(n int) bool { return n != v.folded[0] })
}

// Places lists where the states can be had behind at most base indices
// (backend.StateStorage).
func (t *States[V]) Places(base int) (list []backend.Place) {
	defer t.marks.lock()()
	if t.closed {
		return nil
	}
	t.each(func(h *held[V], _ *mark[V]) {
		p := backend.Place{From: h.settled(), End: min(h.end, base)}
		if p.End > 0 && p.From <= p.End && h.whole() {
			list = append(list, p)
		}
	})
	slices.SortFunc(list, func(a, b backend.Place) int { return cmp.Or(a.End-b.End, a.From-b.From) })
	// Of those with one end the first goes back the furthest.
	return slices.CompactFunc(list, func(a, b backend.Place) bool { return a.End == b.End })
}

// Places lists where states can be had behind at most base indices.
func (s Sequence[P, V]) Places(base int) []backend.Place {
	if s.States == nil {
		return nil
	}
	return s.States.Places(base)
}

// Export gives the states of a place to be read. Its error may be read's.
func (t *States[V]) Export(p backend.Place, read func(v *V) error) error {
	v := t.borrow(p)
	if v == nil {
		return backend.ErrNoPlace
	}
	err := read(&v.at)
	defer t.marks.lock()()
	t.release(v)
	return err
}

// borrow is the version of a place, which stays until it is released; nil: there is none.
func (t *States[V]) borrow(p backend.Place) (found *version[V]) {
	defer t.marks.lock()()
	if t.closed {
		return nil
	}
	t.each(func(h *held[V], _ *mark[V]) {
		if found == nil && h.settled() == p.From && h.covers(p.End) && h.whole() {
			found = h.version
		}
	})
	if found != nil {
		found.owners++
	}
	return found
}

// Import has the states of a place written. Those of the sequence must be empty, and are
// after an error, which may be write's.
func (t *States[V]) Import(p backend.Place, write func(v *V) error) error {
	defer t.marks.lock()()
	switch {
	case t.closed:
		return ErrClosed
	case len(t.versions)+len(t.marked) > 0:
		return errors.New("an import of states beside others")
	}
	for len(t.room) == 0 {
		if err := t.take(); err != nil {
			if lacks := (*backend.MemoryError)(nil); errors.As(err, &lacks) && t.marks.evict() {
				continue
			}
			return err
		}
	}
	v := t.room[0]
	if err := write(&v.at); err != nil {
		return err
	}
	for i := range v.folded {
		v.folded[i] = p.From
	}
	t.versions = []held[V]{{v, p.End}}
	for _, other := range t.room[1:] { // what follows takes what it needs
		t.release(other)
	}
	t.room = nil
	return nil
}
