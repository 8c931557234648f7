// Package paging keeps the page tables of sequences, for all backends: which page
// holds which tokens, who shares one, and what all of them take of the budget. A
// backend brings the pages.
package paging

import (
	"errors"
	"fmt"

	"windrow/backend"
)

// Pool is where a backend's pages come from; P is how it finds one.
type Pool[P any] interface {
	// Take returns a page of undefined contents.
	Take() (P, error)
	// Give takes a page back that nobody has any more.
	Give(p P)
	// Copy makes a page like another.
	Copy(to, from P) error
}

// page is some tokens' keys and values, of one sequence or of several.
type page[P any] struct {
	at     P
	owners int
}

// Table is one sequence's pages, of backend.PageTokens slots each. They are taken when
// they are first reserved or written: memory follows the tokens held.
//
// Like a backend, tables of one pool may be used by one goroutine at a time.
type Table[P any] struct {
	layout backend.Layout
	bytes  int64 // of a page
	pool   Pool[P]
	budget *backend.Budget
	pages  []*page[P] // by slot / PageTokens; nil where there is none yet
	held   int        // the first page that there is not
	closed bool
}

// ErrClosed is the use of a closed storage.
var ErrClosed = errors.New("the storage is closed")

// New makes an empty table of a layout that was checked.
func New[P any](l backend.Layout, pool Pool[P], budget *backend.Budget) *Table[P] {
	n := (l.Slots + backend.PageTokens - 1) / backend.PageTokens
	return &Table[P]{layout: l, bytes: l.Keys().PageBytes(), pool: pool, budget: budget, pages: make([]*page[P], n)}
}

// Layout is the layout of the sequence.
func (t *Table[P]) Layout() backend.Layout { return t.layout }

// Open reports whether the table is not closed.
func (t *Table[P]) Open() bool { return !t.closed }

// Bytes is what the pages take, shared ones included.
func (t *Table[P]) Bytes() (n int64) {
	for _, p := range t.pages {
		if p != nil {
			n += t.bytes
		}
	}
	return n
}

// At is page i, which must be there.
func (t *Table[P]) At(i int) P { return t.pages[i].at }

// Has reports whether there is a page i.
func (t *Table[P]) Has(i int) bool { return i >= 0 && i < len(t.pages) && t.pages[i] != nil }

// Reach is backend.Layout's.
func (t *Table[P]) Reach(n, base int) int { return t.layout.Reach(n, base) }

// Mark and Truncate do nothing: pages keep what they have, and what lies past a forward's
// base is overwritten.
func (t *Table[P]) Mark(int)     {}
func (t *Table[P]) Truncate(int) {}

// Reserve takes the pages of the first indices, or none.
func (t *Table[P]) Reserve(tokens int) error {
	if t.closed {
		return ErrClosed
	}
	var made []int
	for i := range (min(tokens, t.layout.Slots) + backend.PageTokens - 1) / backend.PageTokens {
		if t.pages[i] != nil {
			continue
		}
		if err := t.take(i); err != nil {
			for _, i := range made {
				t.drop(i)
			}
			return err
		}
		made = append(made, i)
	}
	return nil
}

// Writable sees to pages for indices [from, to) that nobody else has, as a forward
// needs them: those before from must be there. After an error some may have been taken.
func (t *Table[P]) Writable(from, to int) error {
	if t.closed {
		return ErrClosed
	}
	if have := t.holds(); min(from, t.layout.Slots) > have {
		return fmt.Errorf("a forward behind %d tokens: only %d were written", from, have)
	}
	for at := from; at < to; {
		slot := t.layout.Slot(at)
		i := slot / backend.PageTokens
		was := t.pages[i]
		if was == nil || was.owners > 1 {
			if err := t.take(i); err != nil {
				return err
			}
		}
		if was != nil && was.owners > 1 {
			if err := t.pool.Copy(t.pages[i].at, was.at); err != nil {
				t.drop(i)
				t.pages[i] = was
				return err
			}
			was.owners--
		}
		// On to the page's end, which the last kept slot and the ring's may be before.
		n := min(backend.PageTokens-slot%backend.PageTokens, t.layout.Slots-slot)
		if t.layout.Window != 0 && at < t.layout.Keep {
			n = min(n, t.layout.Keep-at)
		}
		at += n
	}
	return nil
}

// holds is how many slots from the first on have pages.
func (t *Table[P]) holds() int {
	for t.held < len(t.pages) && t.pages[t.held] != nil {
		t.held++
	}
	return min(t.held*backend.PageTokens, t.layout.Slots)
}

// take puts a new page in place i.
func (t *Table[P]) take(i int) error {
	if err := t.budget.Take(t.bytes); err != nil {
		return err
	}
	at, err := t.pool.Take()
	if err != nil {
		t.budget.Give(t.bytes)
		if lacks := (*backend.MemoryError)(nil); !errors.As(err, &lacks) {
			err = &backend.MemoryError{Span: -1, Bytes: t.bytes, Err: err}
		}
		return err
	}
	t.pages[i] = &page[P]{at, 1}
	return nil
}

// drop forgets page i; its last owner gives it back.
func (t *Table[P]) drop(i int) {
	p := t.pages[i]
	if p == nil {
		return
	}
	t.pages[i], t.held = nil, min(t.held, i)
	if p.owners--; p.owners == 0 {
		t.pool.Give(p.at)
		t.budget.Give(t.bytes)
	}
}

// Fork returns a table of that many slots that begins with this one's first n indices:
// full pages are shared, the last is copied.
func (t *Table[P]) Fork(n, slots int) (*Table[P], error) {
	switch {
	case t.closed:
		return nil, ErrClosed
	case t.layout.Window != 0:
		return nil, errors.New("a storage that rotates cannot be forked")
	case n < 0 || n > slots:
		return nil, fmt.Errorf("a fork of %d tokens with %d slots", n, slots)
	case n > t.holds():
		return nil, fmt.Errorf("a fork of %d tokens, of which %d were written", n, t.holds())
	}
	l := t.layout
	l.Slots = slots
	y := New(l, t.pool, t.budget)
	full := n / backend.PageTokens
	for i, p := range t.pages[:full] {
		p.owners++
		y.pages[i] = p
	}
	if n%backend.PageTokens != 0 {
		if err := y.take(full); err != nil {
			y.Close()
			return nil, err
		}
		if err := t.pool.Copy(y.pages[full].at, t.pages[full].at); err != nil {
			y.Close()
			return nil, err
		}
	}
	return y, nil
}

// Page is page i for Export: it must have been written. buffer must have an exported
// page's size.
func (t *Table[P]) Page(i int, buffer []byte) (at P, err error) {
	if err := t.exports(i); err != nil {
		return at, err
	}
	if want := t.layout.Keys().ExportedPage(); len(buffer) != want {
		return at, fmt.Errorf("a page of %d bytes, want %d", len(buffer), want)
	}
	return t.pages[i].at, nil
}

// exports refuses pages that there are not, or that are not exported.
func (t *Table[P]) exports(i int) error {
	switch {
	case t.closed:
		return ErrClosed
	case t.layout.Window != 0:
		return errors.New("pages of a storage that rotates are not exported")
	case !t.Has(i):
		return fmt.Errorf("page %d of %d was never written", i, len(t.pages))
	}
	return nil
}

// NewPage is page i for Import, taken where there is none, and no one else's.
func (t *Table[P]) NewPage(i int, buffer []byte) (at P, err error) {
	if len(buffer) != t.layout.Keys().ExportedPage() {
		return t.Page(i, buffer) // which says so
	}
	return t.Room(i)
}

// Room is page i for who fills it, then imports it: taken where there is none, and no one
// else's.
func (t *Table[P]) Room(i int) (at P, err error) {
	if err := t.own(i); err != nil {
		return at, err
	}
	if err := t.exports(i); err != nil {
		return at, err
	}
	return t.pages[i].at, nil
}

// own sees to a page i that nobody else has, where there may be one.
func (t *Table[P]) own(i int) error {
	if t.closed || t.layout.Window != 0 || i < 0 || i >= len(t.pages) || i*backend.PageTokens > t.holds() {
		return nil
	}
	return t.Writable(i*backend.PageTokens, min((i+1)*backend.PageTokens, t.layout.Slots))
}

// Close gives the pages up.
func (t *Table[P]) Close() {
	for i := range t.pages {
		t.drop(i)
	}
	t.pages, t.closed, t.held = nil, true, 0
}
