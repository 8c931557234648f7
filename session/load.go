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
	// Tokens is how many, whole pages of them.
	Tokens int
	parts  []part
}

// part is some pages, from its first on, of a segment.
type part struct {
	*segment
	pages int
}

// Key is equal for hits of the same pages.
func (h *Hit) Key() string {
	last := h.parts[len(h.parts)-1]
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
	for {
		var best part
		for _, x := range s.children[at] {
			if n := x.alike(tokens[h.Tokens:]); x.there && n > best.pages {
				best = part{x, n}
			}
		}
		if best.pages == 0 {
			break
		}
		h.parts = append(h.parts, best)
		h.Tokens += best.pages * s.o.PageTokens
		if best.pages < segmentPages {
			break
		}
		at = best.name
	}
	if h.Tokens == 0 {
		return nil
	}
	return h
}

// alike is how many of a segment's pages some tokens begin with.
func (x *segment) alike(tokens []int32) (pages int) {
	for n := x.PageTokens; n <= min(len(tokens), len(x.Tokens)) && slices.Equal(x.Tokens[n-x.PageTokens:n], tokens[n-x.PageTokens:n]); n += x.PageTokens {
		pages++
	}
	return pages
}

// Load reads the pages of a hit from one on, in order, and gives each to put, which must
// be done with the bytes when it returns. What is wrong with a segment is an error, and
// ends the sessions that have it. What put returns ends the load.
func (s *Store) Load(ctx context.Context, h *Hit, from int, put func(page []byte) error) error {
	buffer := make([]byte, s.o.PageBytes+4)
	first := 0
	for _, p := range h.parts {
		if first+p.pages > from {
			if err := s.loadPart(ctx, p, max(0, from-first), buffer, put); err != nil {
				return err
			}
		}
		first += p.pages
	}
	s.used(h)
	return nil
}

// loadPart reads pages of one segment.
func (s *Store) loadPart(ctx context.Context, p part, from int, buffer []byte, put func(page []byte) error) error {
	began := time.Now()
	f, err := os.Open(s.segmentPath(p.name))
	if err != nil {
		s.bad(p.segment, err)
		return err
	}
	defer f.Close()
	x, err := s.checked(f, p.segment)
	if err != nil {
		s.bad(p.segment, err)
		return err
	}
	took := time.Since(began)
	for i := from; i < p.pages; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		began = time.Now()
		page, err := x.page(i, buffer)
		if err != nil {
			s.bad(p.segment, err)
			return err
		}
		took += time.Since(began)
		if err := put(page); err != nil {
			return err
		}
	}
	s.measured((p.pages-from)*len(buffer), took)
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
	if x.Fingerprint != s.o.Fingerprint || x.Parent != want.Parent || x.PageTokens != s.o.PageTokens || x.PageBytes != s.o.PageBytes || !slices.Equal(x.Tokens, want.Tokens) {
		return nil, fmt.Errorf("it is of other tokens or of another model")
	}
	return x, nil
}

// bad drops the sessions that have a segment, and says so once.
func (s *Store) bad(x *segment, why error) {
	s.mutex.Lock()
	known, dropped := s.segments[x.name] == x, 0
	for _, m := range s.sessions {
		if known && slices.Contains(m.Segments, x.name) && s.drop(m) == nil {
			dropped++
		}
	}
	s.mutex.Unlock()
	if !known { // it went in the meantime, or somebody was here before
		return
	}
	s.o.Note(fmt.Sprintf("segment %s cannot be used, sessions dropped: %d: %v", x.name, dropped, why))
}

// measured notes how fast files are read.
func (s *Store) measured(bytes int, took time.Duration) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	rate := float64(bytes) / max(took.Seconds(), 1e-9)
	if s.rate == 0 {
		s.rate = rate
	} else {
		s.rate += (rate - s.rate) / 4
	}
}

// ReadRate is how many bytes a second were read of late; 0 where nothing was read yet.
func (s *Store) ReadRate() float64 {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.rate
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
