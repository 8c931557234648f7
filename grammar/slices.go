package grammar

import "unicode/utf8"

// Most tokens are plain words. In a string of JSON nearly all of them are
// allowed, and to find that out one by one takes milliseconds. So tokens are
// cut into slices by the alphabet they are written in: where any text of the
// alphabet may follow, up to some number of characters, all tokens that are no
// longer are allowed at once; where none may follow, none is.

// A slice is the tokens of one alphabet that are of no smaller one.
type slice struct {
	trie trie
	// upTo[n] are the ids of at most n characters.
	upTo [longestPlain + 1][]uint64
}

// longestPlain is the most characters that a token of a slice has: a longer one
// is of the rest.
const longestPlain = 32

// An alphabet is characters, with a space before them or not.
type alphabet struct {
	space bool
	has   func(c byte) bool // of the ASCII ones
	multi bool              // and all others
}

func lower(c byte) bool { return 'a' <= c && c <= 'z' }

func alphanumeric(c byte) bool { return lower(c|0x20) || '0' <= c && c <= '9' }

// plain are the characters that a JSON string holds as they are, but for the one that
// triggers of a [Free] text begin with.
func plain(c byte) bool { return c >= ' ' && c != '"' && c != '\\' && c != '<' && c < 0x80 }

// alphabets, smaller ones first.
var alphabets = [...]alphabet{
	{has: lower},
	{has: lower, space: true},
	{has: alphanumeric},
	{has: alphanumeric, space: true},
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
	for i, a := range alphabets {
		sl := &v.slices[i]
		from, shorter := s, uint8(0)
		if a.space {
			from, shorter = e.stepState(s, e.g.class[' ']), 1
			if from == noState {
				continue
			}
		}
		left := 4096
		all := uint8(longestPlain) - shorter
		if !e.allOf(from, i, all, &left) {
			for all = 0; e.allOf(from, i, all+1, &left); all++ {
			}
		}
		if all > 0 {
			for w, bits := range sl.upTo[all+shorter] {
				dst[w] |= bits
			}
		}
		// Longer ones are looked at one by one, unless none can follow.
		longest := uint8(longestPlain) - shorter
		if all == longest || e.noneOf(from, i, all+1, &left) {
			continue
		}
		// Behind the first character most texts are often at a place where all may follow.
		first := 1 // bytes of it
		e.walk(&sl.trie, s, dst, rest, func(n trieNode, to *state) bool {
			if n.depth == 1 {
				first = runeBytes(n.byte)
			}
			return int(n.depth) == first && e.allOf(to, i, longestPlain, &left)
		})
	}
	e.walk(&v.rest, s, dst, rest, nil)
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
