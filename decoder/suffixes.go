package decoder

import (
	"math/bits"
	"slices"
)

// suffixes is the suffix automaton of a text that grows token by token (Blumer,
// Blumer, Haussler, Ehrenfeucht, Chen, Seiferas, Theoretical Computer Science 40, 1985):
// at most 2n states and 3n edges for n tokens, some 150 bytes a token. A token more
// takes constant time, amortised.
type suffixes struct {
	text   []int32
	states []suffixState
	edges  []suffixEdge
	table  []int32 // edges by hash of state and token: 1 + the first, 0 for none
	last   int32   // the state of the whole text
}

// suffixState is a set of substrings that end at the same places.
type suffixState struct {
	length int32 // of the longest of them
	link   int32 // the state of the longest suffix that ends at more places
	first  int32 // 1 + the first of its edges
	end    int32 // one of the places: the last token's
}

type suffixEdge struct {
	state, token, to int32
	next             int32 // 1 + the next edge of the state
	chain            int32 // 1 + the next edge of the bucket
}

func newSuffixes() *suffixes {
	return &suffixes{states: []suffixState{{link: -1, end: -1}}, table: make([]int32, 64)}
}

// grow makes room for a text of so many tokens, of which a few repeat themselves.
func (s *suffixes) grow(tokens int) {
	s.text = slices.Grow(s.text, tokens)
	s.states = slices.Grow(s.states, tokens+tokens/2)
	s.edges = slices.Grow(s.edges, 2*tokens)
	s.rehash(1 << bits.Len(uint(2*tokens)))
}

// rehash makes the table of at least so many buckets, a power of two.
func (s *suffixes) rehash(buckets int) {
	s.table = make([]int32, max(buckets, len(s.table)))
	for i := range s.edges {
		e := &s.edges[i]
		b := s.bucket(e.state, e.token)
		e.chain, s.table[b] = s.table[b], int32(i+1)
	}
}

func (s *suffixes) bucket(state, token int32) int {
	return int(scramble(uint64(uint32(state))<<32|uint64(uint32(token))) & uint64(len(s.table)-1))
}

// edge returns the edge of a state for a token, nil where there is none. It is good
// until the next one is added.
func (s *suffixes) edge(state, token int32) *suffixEdge {
	for i := s.table[s.bucket(state, token)]; i != 0; i = s.edges[i-1].chain {
		if e := &s.edges[i-1]; e.state == state && e.token == token {
			return e
		}
	}
	return nil
}

func (s *suffixes) connect(state, token, to int32) {
	if len(s.edges) >= len(s.table) {
		s.rehash(2 * len(s.table))
	}
	b, n := s.bucket(state, token), int32(len(s.edges)+1)
	s.edges = append(s.edges, suffixEdge{state, token, to, s.states[state].first, s.table[b]})
	s.table[b], s.states[state].first = n, n
}

// extend appends a token. It returns how long the longest suffix of the text is that
// occurs in it earlier, too, and where that one ends; 0 for none.
func (s *suffixes) extend(token int32) (length, end int) {
	s.text = append(s.text, token)
	at := int32(len(s.text) - 1)
	whole := int32(len(s.states))
	s.states = append(s.states, suffixState{length: at + 1, end: at})
	p := s.last
	for ; p >= 0 && s.edge(p, token) == nil; p = s.states[p].link {
		s.connect(p, token, whole)
	}
	link := int32(0)
	if p >= 0 {
		link = s.split(p, token)
	}
	s.states[whole].link, s.last = link, whole
	if link == 0 {
		return 0, 0
	}
	// The latest place where this suffix was looked for is more like this one than the
	// first; going through all that end there would not be constant time.
	x := &s.states[link]
	length, end = int(x.length), int(x.end)
	x.end = at
	return length, end
}

// split returns the state of what p and a token behind it make: the one that the edge
// leads to, or, where that has longer strings in it, a copy without them.
func (s *suffixes) split(p, token int32) int32 {
	old := s.edge(p, token).to
	if s.states[p].length+1 == s.states[old].length {
		return old
	}
	x := s.states[old]
	made := int32(len(s.states))
	s.states = append(s.states, suffixState{length: s.states[p].length + 1, link: x.link, end: x.end})
	for i := x.first; i != 0; i = s.edges[i-1].next {
		s.connect(made, s.edges[i-1].token, s.edges[i-1].to)
	}
	for ; p >= 0; p = s.states[p].link {
		e := s.edge(p, token)
		if e == nil || e.to != old {
			break
		}
		e.to = made
	}
	s.states[old].link = made
	return made
}

// follower is the longest suffix of another text that occurs in an automaton's.
type follower struct {
	state  int32
	length int
}

// follow moves on by a token of the other text.
func (s *suffixes) follow(f follower, token int32) follower {
	for {
		if e := s.edge(f.state, token); e != nil {
			return follower{e.to, f.length + 1}
		}
		if f.state == 0 {
			return follower{}
		}
		f.state = s.states[f.state].link
		f.length = int(s.states[f.state].length)
	}
}

// history is a text of any length, of which as many of the newest tokens are searched
// as a limit says, and up to twice as many: an automaton is filled, then kept beside the
// next one.
type history struct {
	now, old *suffixes // old: nil, until there is one
	inOld    follower
	base     int // of now's first token
	limit    int
	length   int // of the longest suffix that occurs earlier
	end      int // where it does
}

func newHistory(limit int) *history { return &history{now: newSuffixes(), limit: limit} }

func (h *history) len() int { return h.base + len(h.now.text) }

// at is the token at a place that is still kept; false where none is.
func (h *history) at(i int) (token int32, ok bool) {
	switch j := i - h.base; {
	case j >= len(h.now.text):
	case j >= 0:
		return h.now.text[j], true
	case h.old != nil && j+len(h.old.text) >= 0:
		return h.old.text[j+len(h.old.text)], true
	}
	return 0, false
}

// extend appends a token.
func (h *history) extend(token int32) {
	if len(h.now.text) >= h.limit {
		// Its whole text ends where it ends, and nothing follows there yet.
		at := h.now.states[h.now.last].link
		h.base += len(h.now.text)
		h.old, h.inOld = h.now, follower{max(0, at), int(h.now.states[max(0, at)].length)}
		h.now = newSuffixes()
	}
	h.length, h.end = h.now.extend(token)
	h.end += h.base
	if h.old == nil {
		return
	}
	h.inOld = h.old.follow(h.inOld, token)
	if h.inOld.length > h.length {
		h.length = h.inOld.length
		h.end = h.base - len(h.old.text) + int(h.old.states[h.inOld.state].end)
	}
}
