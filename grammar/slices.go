package grammar

import (
	"slices"
	"unicode/utf8"
)

// Most tokens are plain words. In a string of JSON nearly all of them are
// allowed, and to find that out one by one takes milliseconds. So tokens are
// cut into slices by the alphabet they are written in: where any text of the
// alphabet may follow, up to some number of characters, all tokens that are no
// longer are allowed at once; where none may follow, none is.

// A slice is the tokens of one alphabet that are of no smaller one.
type slice struct {
	trie trie
	// upTo[n] are the ids of at most n characters.
	upTo    [longestPlain + 1][]uint64
	longest uint8 // characters
}

// longestPlain is the most characters that a token of a slice has: a longer one
// is of the rest.
const longestPlain = 32

// largestASCII is the alphabet that all smaller ones are of.
const largestASCII = 5

// An alphabet is characters, with a space before them or not.
type alphabet struct {
	space bool
	has   func(c byte) bool // of the ASCII ones
	multi bool              // and all others
}

func lower(c byte) bool { return 'a' <= c && c <= 'z' }

func alphanumeric(c byte) bool { return lower(c|0x20) || '0' <= c && c <= '9' }

func word(c byte) bool { return alphanumeric(c) || c == '_' || c == '-' }

// tagSign is what triggers of a [Free] text begin with.
const tagSign = '<'

// plain are the characters that a JSON string holds as they are, but for the sign of tags.
func plain(c byte) bool { return c >= ' ' && c != '"' && c != '\\' && c != tagSign && c < 0x80 }

// alphabets, smaller ones first.
var alphabets = [...]alphabet{
	{has: lower},
	{has: lower, space: true},
	{has: alphanumeric},
	{has: alphanumeric, space: true},
	{has: word},
	{has: plain},
	{has: plain, multi: true},
}

// sliceOf is the number of a token's slice; len(alphabets) for the rest.
func sliceOf(token string) int {
	if !utf8.ValidString(token) || utf8.RuneCountInString(token) > longestPlain {
		return len(alphabets)
	}
next:
	for i, a := range alphabets {
		s := token
		if a.space {
			if len(s) < 2 || s[0] != ' ' {
				continue
			}
			s = s[1:]
		}
		for k := range len(s) {
			if !(s[k] < 0x80 && a.has(s[k]) || s[k] >= 0x80 && a.multi) {
				continue next
			}
		}
		return i
	}
	return len(alphabets)
}

// reach is what is known of the texts of an alphabet that follow a state.
type reach struct {
	known bool
	// to are the states that one character leads to; some: there is a character
	// that leads nowhere.
	to   []*state
	some bool
	// All texts of up to all characters may follow, not all of notAll; no text of none
	// characters may, one of notNone does.
	all, notAll, none, notNone uint8
}

func (e *engine) reachOf(s *state, alphabet int) *reach {
	if s.reach == nil {
		s.reach = make([]reach, len(alphabets))
		e.size += len(alphabets) * 40
	}
	r := &s.reach[alphabet]
	if !r.known {
		*r = reach{known: true, notAll: 255, none: 255}
		e.characters(s, alphabets[alphabet], r)
	}
	return r
}

// characters fills in where one character of an alphabet leads.
func (e *engine) characters(s *state, a alphabet, r *reach) {
	found := func(to *state) {
		if to == noState {
			r.some = true
			return
		}
		for _, t := range r.to {
			if t == to {
				return
			}
		}
		r.to = append(r.to, to)
	}
	for class := range e.g.first {
		for c := int(e.g.first[class]); c <= int(e.g.last(class)) && c < 0x80; c++ {
			if a.has(byte(c)) {
				found(e.stepState(s, uint8(class)))
				break
			}
		}
	}
	if !a.multi {
		return
	}
	utf8Sequences(0x80, utf8.MaxRune, func(seq []edge) {
		at := []*state{s}
		for _, step := range seq {
			var to []*state
			for _, from := range at {
				for class := int(e.g.class[step.lo]); class <= int(e.g.class[step.hi]); class++ {
					t := e.stepState(from, uint8(class))
					if t == noState {
						r.some = true
						continue
					}
					seen := false
					for _, other := range to {
						seen = seen || other == t
					}
					if !seen {
						to = append(to, t)
					}
				}
			}
			at = to
		}
		for _, t := range at {
			found(t)
		}
	})
}

// allOf reports whether every text of up to n characters of an alphabet may
// follow s. left is how many states may yet be looked at.
func (e *engine) allOf(s *state, alphabet int, n uint8, left *int) bool {
	r := e.reachOf(s, alphabet)
	if n <= r.all {
		return true
	}
	if n >= r.notAll || *left <= 0 {
		return false
	}
	*left--
	ok := !r.some
	if room := e.copiesOn(s, r); room >= int(n) {
		r.all = uint8(min(room, 254))
		return true
	}
	for _, to := range r.to {
		ok = ok && e.allOf(to, alphabet, n-1, left)
	}
	switch {
	case ok:
		r.all = max(r.all, n)
	case *left > 0:
		r.notAll = min(r.notAll, n)
	}
	return ok
}

// copiesOn is for how many characters of an alphabet a counted text goes on at least: where
// each leads from a copy to the next, which is alike. 0: that is not known.
func (e *engine) copiesOn(s *state, r *reach) int {
	if r.some || len(r.to) != 1 || len(s.groups) != 1 || len(r.to[0].groups) != 1 {
		return 0
	}
	from, to := s.groups[0], r.to[0].groups[0]
	if from.at != to.at || len(from.l.nodes) != len(to.l.nodes) {
		return 0
	}
	for _, seg := range e.g.segments {
		if last := seg.next(from.l.nodes, to.l.nodes); last >= 0 {
			return int(seg.copies-last) - 2
		}
	}
	return 0
}

// noneOf reports whether no text of n characters of an alphabet may follow s.
func (e *engine) noneOf(s *state, alphabet int, n uint8, left *int) bool {
	if s.left {
		return false // it depends on what follows the rule
	}
	r := e.reachOf(s, alphabet)
	if n >= r.none {
		return true
	}
	if n <= r.notNone || *left <= 0 {
		return false
	}
	*left--
	none := true
	for _, to := range r.to {
		none = none && e.noneOf(to, alphabet, n-1, left)
	}
	switch {
	case none:
		r.none = min(r.none, n)
	case *left > 0:
		r.notNone = max(r.notNone, n)
	}
	return none
}

// walkSlices sets the bits of all ids whose tokens lead on from s, slice by
// slice.
func (e *engine) walkSlices(v *Vocabulary, s *state, dst []uint64, rest func(*trie, int) bool) {
	if e.walkBoundless(v, s, dst, rest) {
		return
	}
	e.walkPlain(v, s, dst, rest)
	e.walk(&v.odd, s, dst, rest, nil)
	e.walk(&v.tagged, s, dst, rest, nil)
}

// walkPlain is walkSlices for the tokens of slices.
func (e *engine) walkPlain(v *Vocabulary, s *state, dst []uint64, rest func(*trie, int) bool) {
	// Where the largest of ASCII may follow, so may the smaller ones.
	known := 0
	if left := 4096; e.allOf(s, largestASCII, longestPlain, &left) {
		unite(dst, v.ascii)
		known = largestASCII + 1
	}
	for i, a := range alphabets {
		if i < known {
			continue
		}
		sl := &v.slices[i]
		from, shorter := s, uint8(0)
		if a.space {
			from, shorter = e.stepState(s, e.g.class[' ']), 1
			if from == noState {
				continue
			}
		}
		left := 4096
		longest := max(sl.longest, shorter+1) - shorter
		all := longest
		if !e.allOf(from, i, all, &left) {
			for all = 0; e.allOf(from, i, all+1, &left); all++ {
			}
		}
		if all > 0 {
			unite(dst, sl.upTo[all+shorter])
		}
		// Longer ones are looked at one by one, unless none can follow.
		if all == longest || e.noneOf(from, i, all+1, &left) {
			continue
		}
		// Behind the first character most texts are often at a place where all may follow.
		first := 1 // bytes of it
		e.walk(&sl.trie, s, dst, rest, func(n trieNode, to *state) bool {
			if n.depth == 1 {
				first = runeBytes(n.byte)
			}
			return int(n.depth) == first && e.allOf(to, i, sl.longest, &left)
		})
	}
}

// unite sets the bits of other in dst.
func unite(dst, other []uint64) {
	dst = dst[:len(other)]
	for w, bits := range other {
		dst[w] |= bits
	}
}

// manyPlaces is how many states are looked at before a place is not called boundless.
const manyPlaces = 16

// boundless reports whether s is a place of a free text: behind which any text at all may
// follow, as long as no tag begins in it.
func (e *engine) boundless(s *state) bool {
	if s == noState {
		return false
	}
	if s.bounds != boundsUnknown {
		return s.bounds == boundsNone
	}
	seen := make([]*state, 1, manyPlaces)
	seen[0] = s
	for i := 0; i < len(seen); i++ {
		for class, first := range e.g.first {
			if first == tagSign && e.g.last(class) == tagSign {
				continue
			}
			to := e.stepState(seen[i], uint8(class))
			switch {
			case to.bounds == boundsNone || slices.Contains(seen, to):
			case to == noState || to.bounds == boundsSome || len(seen) == manyPlaces:
				s.bounds = boundsSome
				return false
			default:
				seen = append(seen, to)
			}
		}
	}
	for _, at := range seen {
		at.bounds = boundsNone
	}
	return true
}

// What is known of a place's bounds.
const (
	boundsUnknown = iota
	boundsSome
	boundsNone
)

// walkBoundless is walkSlices where most texts may follow as they like: in a free text, and
// where one goes on behind what is no tag after all. It reports whether s is such a place.
func (e *engine) walkBoundless(v *Vocabulary, s *state, dst []uint64, rest func(*trie, int) bool) bool {
	if s == noState {
		return true
	}
	var bound [256]bool
	if !e.boundless(s) {
		var with, without int32
		for class, first := range e.g.first {
			free := e.boundless(e.stepState(s, uint8(class)))
			for c := int(first); c <= int(e.g.last(class)); c++ {
				if bound[c] = !free; free {
					without += v.begins[c]
				} else {
					with += v.begins[c]
				}
			}
		}
		if with >= without {
			return false
		}
	}
	unite(dst, v.untagged)
	part := func(t *trie) {
		for i, n := range t.tops {
			if !bound[n.byte] {
				continue
			}
			for _, id := range t.below(n) {
				dst[id>>6] &^= 1 << (id & 63)
			}
			e.walkPart(t, i, int(n.skip), s, dst, rest, nil)
		}
	}
	for i := range v.slices {
		part(&v.slices[i].trie)
	}
	part(&v.odd)
	e.walk(&v.tagged, s, dst, rest, nil)
	return true
}

// runeBytes is how many bytes a character has that begins with b.
func runeBytes(b byte) int {
	switch {
	case b < 0xC0:
		return 1
	case b < 0xE0:
		return 2
	case b < 0xF0:
		return 3
	}
	return 4
}
