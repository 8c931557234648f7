package paging

import (
	"errors"
	"fmt"
	"slices"

	"windrow/backend"
)

// StatePool is where a backend's states come from: V has those of all layers of one
// sequence, with their logs, in the size that a layout says.
type StatePool[V any] interface {
	// Take returns states of undefined contents.
	Take() (V, error)
	// Give takes states back that nobody has any more. It may be called while another
	// goroutine uses the backend: a mark goes when it goes.
	Give(v V)
}

// version is the states of a sequence as of some index, of one sequence or of several
// that begin alike. Its log has the rows that follow.
type version[V any] struct {
	at     V
	folded []int // by layer: how many indices the state covers
	owners int
}

// settled is where a version begins: it cannot go back behind that.
func (v *version[V]) settled() (n int) {
	for _, f := range v.folded {
		n = max(n, f)
	}
	return n
}

// held is a version as one sequence has it: with rows of its own up to end.
type held[V any] struct {
	*version[V]
	end int
}

// covers reports whether a forward behind n indices can begin with it.
func (h *held[V]) covers(n int) bool { return h.settled() <= n && n <= h.end }

// States are one sequence's states, by index as its keys are: a forward says behind how
// many it stands, and finds the version that covers them. What lies past that is
// forgotten then.
//
// Like a backend, states of one pool may be used by one goroutine at a time, but for Reach,
// Mark, Truncate and Bytes, which sequences call between their forwards: all of them take
// the lock of the marks that they share.
type States[V any] struct {
	layout   backend.Layout
	layers   int
	bytes    int64 // of a version
	pool     StatePool[V]
	marks    *Marks[V]
	budget   *backend.Budget
	versions []held[V]     // one, or, after a forward of many rows, what it came from, too
	marked   []*marked[V]  // the oldest first
	room     []*version[V] // reserved: nobody has written them
	step     StateStep[V]
	closed   bool
}

// StateStep is what a forward does with a sequence's states.
type StateStep[V any] struct {
	// From is where they are read, behind Base indices; nil: there are none yet, and
	// all is zero. To is where they are written: maybe the same.
	From, To *V
	// Rows is how many rows the forward has. Those before index Settle are added to the
	// states, the others are logged.
	Base, Rows, Settle int

	from, to *version[V]
	done     int
}

// InPlace reports whether the states are written where they are read.
func (s *StateStep[V]) InPlace() bool { return s.from == s.to }

// Folded is how many indices a layer's state in From covers: those from there to Base
// are in its log.
func (s *StateStep[V]) Folded(layer int) int {
	if s.from == nil {
		return 0
	}
	return s.from.folded[layer]
}

// NewStates makes the states of an empty sequence, of a layout that was checked.
func NewStates[V any](l backend.Layout, pool StatePool[V], marks *Marks[V], budget *backend.Budget) *States[V] {
	return &States[V]{layout: l, layers: len(l.States()), bytes: l.StateBytes(), pool: pool, marks: marks, budget: budget}
}

// Bytes is what the states take, shared ones and marks included.
func (t *States[V]) Bytes() int64 {
	defer t.marks.lock()()
	n := len(t.versions) + len(t.room)
	for _, m := range t.marked {
		if !m.mark.gone {
			n++
		}
	}
	return int64(n) * t.bytes
}

// Reach is the largest number of indices, at most n, behind which a forward may stand.
func (t *States[V]) Reach(n int) int {
	defer t.marks.lock()()
	return t.reach(n)
}

func (t *States[V]) reach(n int) (best int) {
	t.each(func(h *held[V], _ *mark[V]) {
		if h.settled() <= n {
			best = max(best, min(n, h.end))
		}
	})
	return best
}

// each goes through all versions, with the marks that they are of.
func (t *States[V]) each(do func(h *held[V], m *mark[V])) {
	for i := range t.versions {
		do(&t.versions[i], nil)
	}
	for _, m := range t.marked {
		if !m.mark.gone {
			do(&m.held, m.mark)
		}
	}
}

// find is the version that covers n indices and has the fewest of them in its log; nil:
// there is none.
func (t *States[V]) find(n int) (best *version[V]) {
	var of *mark[V]
	t.each(func(h *held[V], m *mark[V]) {
		if h.covers(n) && (best == nil || h.settled() > best.settled()) {
			best, of = h.version, m
		}
	})
	t.marks.touch(of)
	return best
}

// Begin sees to what a forward of some rows behind base indices reads and writes. After
// an error nothing has begun; marks may have gone.
func (t *States[V]) Begin(base, rows int) error {
	defer t.marks.lock()()
	if t.closed {
		return ErrClosed
	}
	var from *version[V]
	if base > 0 {
		if from = t.find(base); from == nil {
			return fmt.Errorf("a forward behind %d tokens: the states go back to %d", base, t.reach(base))
		}
	}
	t.forget(base, from)
	s := StateStep[V]{Base: base, Rows: rows, Settle: t.layout.Settle(base, rows), from: from}
	to, err := t.target(from, s.Settle == base)
	if err != nil {
		return err
	}
	s.to, s.To = to, &to.at
	if from != nil {
		s.From = &from.at
	}
	t.step = s
	return nil
}

// forget drops what lies past base, and all versions but one that is needed and one that
// may be written.
func (t *States[V]) forget(base int, from *version[V]) {
	kept := t.marked[:0]
	for _, m := range t.marked {
		if m.mark.gone || m.settled() > base {
			t.marks.leave(m.mark)
			continue
		}
		m.end = min(m.end, base)
		kept = append(kept, m)
	}
	clear(t.marked[len(kept):])
	t.marked = kept
	had := t.versions
	t.versions = nil
	if from != nil { // also a marked one: the mark may have to go
		from.owners++
		t.versions = []held[V]{{from, base}}
	}
	for _, h := range had {
		switch {
		case h.version == from:
			t.release(from)
		case h.owners == 1 && len(t.room) == 0:
			t.room = append(t.room, h.version)
		default:
			t.release(h.version)
		}
	}
}

// target is the version that a forward writes: the one that it reads, where nobody else
// has it and no row is settled, or another.
func (t *States[V]) target(from *version[V], stays bool) (*version[V], error) {
	for {
		mine := from != nil && from.owners == 1 && len(t.versions) == 1
		if stays && mine {
			for _, v := range t.room {
				t.release(v)
			}
			t.room = nil
			return from, nil
		}
		if len(t.room) == 0 {
			if err := t.take(); err != nil {
				if lacks := (*backend.MemoryError)(nil); errors.As(err, &lacks) && t.marks.evict() {
					continue
				}
				return nil, err
			}
		}
		to := t.room[0]
		t.room = t.room[1:]
		t.versions = append(t.versions, held[V]{to, -1}) // covers nothing until it is written
		return to, nil
	}
}

// take makes a version.
func (t *States[V]) take() error {
	if err := t.budget.Take(t.bytes); err != nil {
		return err
	}
	at, err := t.pool.Take()
	if err != nil {
		t.budget.Give(t.bytes)
		return &backend.MemoryError{Span: -1, Bytes: t.bytes, Err: err}
	}
	t.room = append(t.room, &version[V]{at: at, folded: make([]int, t.layers), owners: 1})
	return nil
}

// release drops a version; its last owner gives it back.
func (t *States[V]) release(v *version[V]) {
	if v.owners--; v.owners == 0 {
		t.pool.Give(v.at)
		t.budget.Give(t.bytes)
	}
}

// Step is what the forward at work does.
func (t *States[V]) Step() *StateStep[V] { return &t.step }

// Done says that a layer of the forward at work is written. Once all are, the sequence
// may stand behind any of its logged rows.
func (t *States[V]) Done(layer int) {
	defer t.marks.lock()()
	s := &t.step
	s.to.folded[layer] = s.Settle
	if s.done++; s.done < t.layers {
		return
	}
	last := len(t.versions) - 1 // what is written is behind what was read
	t.versions[last].end = s.Base + s.Rows
	if last > 0 && s.Settle == s.Base { // it covers all that the other may be needed for
		t.release(t.versions[0].version)
		t.versions = slices.Delete(t.versions, 0, 1)
	}
}

// Reserve takes what forwards need up to so many indices, and returns how to give it
// back.
func (t *States[V]) Reserve(tokens int) (undo func(), err error) {
	defer t.marks.lock()()
	if t.closed {
		return nil, ErrClosed
	}
	end, mine := 0, false
	t.each(func(h *held[V], m *mark[V]) {
		end = max(end, h.end)
		mine = mine || m == nil && h.owners == 1
	})
	want := 0
	if !mine {
		want++
	}
	if tokens-end > t.layout.LogRows { // forwards that settle rows write beside what they read
		want++
	}
	had := len(t.room)
	back := func() {
		for _, v := range t.room[had:] {
			t.release(v)
		}
		t.room = t.room[:had]
	}
	for len(t.room) < want {
		if err := t.take(); err != nil {
			back()
			return nil, err
		}
	}
	return func() {
		defer t.marks.lock()()
		back()
	}, nil
}

// Truncate forgets what lies past the first n indices, which are reached, and holds the
// states that a forward behind them needs, whatever becomes of marks.
func (t *States[V]) Truncate(n int) {
	defer t.marks.lock()()
	if t.closed {
		return
	}
	var from *version[V]
	if n > 0 {
		if from = t.find(n); from == nil {
			return
		}
	}
	t.forget(n, from)
}

// Mark keeps the states behind base indices. It does nothing where there are none.
func (t *States[V]) Mark(base int) {
	defer t.marks.lock()()
	if t.closed || base == 0 {
		return
	}
	v := t.find(base)
	if v == nil {
		return
	}
	for _, m := range t.marked {
		if !m.mark.gone && m.version == v {
			m.end = max(m.end, base)
			return
		}
	}
	v.owners++
	t.keep(&mark[V]{version: v, release: t.release}, base)
	for len(t.marked) > marksEach {
		t.marks.leave(t.marked[0].mark)
		t.marked = t.marked[1:]
	}
}

// keep makes a mark one of this sequence's.
func (t *States[V]) keep(m *mark[V], end int) {
	t.marks.join(m)
	t.marked = append(t.marked, &marked[V]{held[V]{m.version, end}, m})
}

// Fork returns the states of a sequence that begins with this one's first n indices: a
// version that covers them, and the marks before.
func (t *States[V]) Fork(l backend.Layout, n int) (*States[V], error) {
	defer t.marks.lock()()
	if t.closed {
		return nil, ErrClosed
	}
	y := NewStates(l, t.pool, t.marks, t.budget)
	if n == 0 {
		return y, nil
	}
	v := t.find(n)
	if v == nil {
		return nil, fmt.Errorf("a fork of %d tokens: the states go back to %d", n, t.reach(n))
	}
	v.owners++
	y.versions = []held[V]{{v, n}}
	for _, m := range t.marked {
		if !m.mark.gone && m.settled() <= n {
			y.keep(m.mark, min(m.end, n))
		}
	}
	return y, nil
}

// Close gives the states up.
func (t *States[V]) Close() {
	defer t.marks.lock()()
	for _, h := range t.versions {
		t.release(h.version)
	}
	for _, v := range t.room {
		t.release(v)
	}
	for _, m := range t.marked {
		t.marks.leave(m.mark)
	}
	t.versions, t.room, t.marked, t.closed = nil, nil, nil, true
}
