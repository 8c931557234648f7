package session

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"
)

// Hit is what a store has of a prompt.
type Hit struct {
	// Tokens is how many: whole pages of them, or, of a model with states, as many as
	// there are states for.
	Tokens int
	// From and End are of these states: they go back to as many tokens as that.
	From, End int
	parts     []part
	states    *segment // nil: there are none
}

// part is some tokens, from its first on, of a segment, in so many pages.
type part struct {
	*segment
	tokens, pages int
}

// Key is equal for hits of the same pages.
func (h *Hit) Key() string {
	last := h.parts[len(h.parts)-1]
	if h.states != nil {
		return fmt.Sprint(last.name, last.pages, h.states.name, h.Tokens)
	}
	return fmt.Sprint(last.name, last.pages)
}

// Find returns the most that was saved of a prompt's beginning with a salt; nil where
// that is nothing. It reads no file.
func (s *Store) Find(salt string, tokens []int32) *Hit {
	at := s.o.root(salt)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.closed {
		return nil
	}
	h := new(Hit)
	n := 0 // tokens of all parts
	for {
		var best part
		for _, x := range s.children[at] {
			switch alike := x.alike(tokens[n:]); {
			case !x.there:
			case x.State != nil:
				if n+alike > h.Tokens && n+alike >= x.State.From {
					h.states, h.Tokens = x, n+alike
					h.From, h.End = x.State.From, n+len(x.Tokens)
				}
			default:
				if !s.o.States {
					alike -= alike % s.o.PageTokens
				}
				if alike > best.tokens {
					best = part{x, alike, (alike + s.o.PageTokens - 1) / s.o.PageTokens}
				}
			}
		}
		if best.tokens == 0 {
			break
		}
		h.parts = append(h.parts, best)
		n += best.tokens
		if best.tokens < segmentPages*s.o.PageTokens {
			break
		}
		at = best.name
	}
	switch {
	case !s.o.States:
		h.Tokens = n
	case h.Tokens > n: // they are being saved, or dropped
		return nil
	default:
		h.cut(h.Tokens)
	}
	if h.Tokens == 0 {
		return nil
	}
	return h
}

// StatesBytes is what its states have.
func (h *Hit) StatesBytes() int {
	if h.states == nil {
		return 0
	}
	return h.states.State.Bytes
}

// Cut makes it a hit of fewer tokens, and reports whether there are states for them.
func (h *Hit) Cut(n int) bool {
	if n < max(1, h.From) || n > h.Tokens {
		return false
	}
	h.cut(n)
	return true
}

// cut leaves the parts that have the first n tokens.
func (h *Hit) cut(n int) {
	h.Tokens = n
	for i := range h.parts {
		p := &h.parts[i]
		if n <= p.tokens {
			p.tokens, p.pages = n, (n+p.PageTokens-1)/p.PageTokens
			h.parts = h.parts[:i+1]
			return
		}
		n -= p.tokens
	}
}

// Bytes is what there is to read of a hit, from a page on.
func (h *Hit) Bytes(from int) (n int64) {
	for _, p := range h.parts {
		n += int64(p.pages) * int64(p.PageBytes)
	}
	n -= int64(from) * int64(h.parts[0].PageBytes)
	return n + int64(h.StatesBytes())
}

// alike is how many tokens a segment and others have in common.
func (x *segment) alike(tokens []int32) (n int) {
	for n < min(len(tokens), len(x.Tokens)) && tokens[n] == x.Tokens[n] {
		n++
	}
	return n
}

// Into is where a load puts what it reads.
type Into struct {
	// Room, where not nil, is memory for up to n of the pages that come next: they are read
	// there. Where it gives none they are read elsewhere.
	Room func(n int) ([][]byte, error)
	// Filled, where not nil, gets each page that was read to such memory, and is what was
	// written, by the goroutine that read it: before Put, several at once.
	Filled func(page []byte)
	// Put takes the pages that come next, all in the memory that Room gave for them, or one
	// elsewhere, with which it must be done when it returns.
	Put func(pages ...[]byte) error
	// States takes the states, in the same way.
	States func(data []byte) error
}

// Load reads the pages of a hit from one on, in order, and then its states, if it has
// some. What is wrong with a segment is an error, and ends the sessions that have it;
// where its pages were read to Room's memory, that is zero again. What Into's functions
// return ends the load.
func (s *Store) Load(ctx context.Context, h *Hit, from int, to Into) error {
	l := &loading{Store: s, ctx: ctx, to: to}
	first := 0
	for _, p := range h.parts {
		if first+p.pages > from {
			if err := l.part(p, max(0, from-first)); err != nil {
				return err
			}
		}
		first += p.pages
	}
	if h.states != nil {
		l := &loading{Store: s, ctx: ctx, to: Into{Put: func(pages ...[]byte) error { return to.States(pages[0]) }}}
		if err := l.part(part{segment: h.states, pages: 1}, 0); err != nil {
			return err
		}
	}
	s.used(h)
	return nil
}

// loading is a load that runs.
type loading struct {
	*Store
	ctx     context.Context
	to      Into
	buffers [2][]byte // for pages that are not read to where they belong
}

// part reads pages of one segment from one on.
func (l *loading) part(p part, from int) error {
	f, err := os.Open(l.segmentPath(p.name))
	if err != nil {
		l.bad(p.segment, err)
		return err
	}
	defer f.Close()
	x, err := l.checked(f, p.segment)
	if err != nil {
		l.bad(p.segment, err)
		return err
	}
	for from < p.pages {
		var rooms [][]byte
		if l.to.Room != nil {
			if rooms, err = l.to.Room(p.pages - from); err != nil {
				return err
			}
		}
		var damage error
		if len(rooms) > 0 {
			damage, err = l.fill(x, from, rooms)
			from += len(rooms)
		} else {
			damage, err = l.carry(x, from, p.pages)
			from = p.pages
		}
		if damage != nil {
			l.bad(p.segment, damage)
			return damage
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checked opens a segment's file, whose header must be the one that is meant.
func (s *Store) checked(f *os.File, want *segment) (*segmentFile, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	x, err := openSegment(f, info.Size())
	if err != nil {
		return nil, err
	}
	if x.Fingerprint != s.o.Fingerprint || x.Parent != want.Parent || x.PageTokens != s.o.PageTokens || x.PageBytes != s.o.PageBytes || !slices.Equal(x.Tokens, want.Tokens) ||
		(x.State == nil) != (want.State == nil) || x.State != nil && *x.State != *want.State {
		return nil, fmt.Errorf("it is of other tokens or of another model")
	}
	return x, nil
}

// bad drops the sessions that have a segment, and says so once.
func (s *Store) bad(x *segment, why error) {
	s.mutex.Lock()
	known, dropped := s.segments[x.name] == x, 0
	for _, m := range s.sessions {
		if known && slices.Contains(m.files(), x.name) && s.drop(m) == nil {
			dropped++
		}
	}
	s.mutex.Unlock()
	if !known { // it went in the meantime, or somebody was here before
		return
	}
	s.o.Note(fmt.Sprintf("segment %s cannot be used, sessions dropped: %d: %v", x.name, dropped, why))
}

// used notes that the sessions were used that a hit is of.
func (s *Store) used(h *Hit) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	last := h.parts[len(h.parts)-1]
	var newest *manifest
	for _, m := range s.sessions {
		if slices.Contains(m.Segments, last.name) && (newest == nil || m.used.After(newest.used)) {
			newest = m
		}
	}
	if newest != nil {
		s.use(newest, time.Now())
	}
}
