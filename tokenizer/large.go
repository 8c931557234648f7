package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// large is the vocabulary and the merges, which are nearly all of an 11 MB file.
type large struct {
	vocab  vocabJSON
	merges mergesJSON
	rest   []byte // the file with null in their places
}

// cutLarge reads vocabulary and merges in one walk, where encoding/json looks at each of
// their bytes four times before it hands them over. It takes what is plain alone: false
// says nothing of a file but that the decoder should judge it.
func cutLarge(data []byte) (x large, ok bool) {
	w := walker{data: data}
	vocab := member{"vocab", func() bool { return w.vocab(&x.vocab) }, &x.rest}
	merges := member{"merges", func() bool { return w.merges(&x.merges) }, &x.rest}
	model := member{"model", func() bool { return w.members(vocab, merges) }, nil}
	if !w.members(model) || len(x.vocab.tokens) == 0 {
		return x, false
	}
	x.rest = append(x.rest, data[w.kept:]...)
	return x, true
}

// walker walks over JSON, of which it checks what it reads, and nothing of what it skips.
type walker struct {
	data []byte
	at   int
	kept int // where what follows the last cut begins
}

// next returns the next byte that is not white space; 0 at the end.
func (w *walker) next() byte {
	for ; w.at < len(w.data); w.at++ {
		switch c := w.data[w.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

func (w *walker) take(c byte) bool {
	if w.next() != c {
		return false
	}
	w.at++
	return true
}

// member is one of an object's: its name, what reads it, and where all up to it goes, with null
// in its place; nil: it is not cut out.
type member struct {
	name string
	read func() bool
	rest *[]byte
}

// members walks over an object. Those that are given may be there once, spelled so.
func (w *walker) members(given ...member) bool {
	if !w.take('{') {
		return false
	}
	seen := make([]bool, len(given))
	for {
		from, to, escaped, ok := w.str()
		if !ok || escaped || !w.take(':') {
			return false
		}
		key, here := string(w.data[from:to]), member{read: w.skip}
		for i, m := range given {
			if !strings.EqualFold(key, m.name) {
				continue
			}
			if key != m.name || seen[i] {
				return false
			}
			seen[i], here = true, m
		}
		w.next()
		if here.rest != nil {
			*here.rest = append(append(*here.rest, w.data[w.kept:w.at]...), "null"...)
		}
		if !here.read() {
			return false
		}
		if here.rest != nil {
			w.kept = w.at
		}
		if w.take('}') {
			return true
		}
		if !w.take(',') {
			return false
		}
	}
}

// skip passes over a value.
func (w *walker) skip() bool {
	for depth := 0; w.at < len(w.data); {
		switch c := w.data[w.at]; c {
		case '"':
			if _, _, _, ok := w.str(); !ok {
				return false
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return true // of what holds it
			}
		case ',':
			if depth == 0 {
				return true
			}
		}
		w.at++
	}
	return false
}

// str reads a string: where its bytes are, and whether there are escapes among them.
func (w *walker) str() (from, to int, escaped, ok bool) {
	if !w.take('"') {
		return 0, 0, false, false
	}
	from = w.at
	for i, c := range w.data[from:] {
		switch {
		case c == '"':
			w.at = from + i + 1
			return from, from + i, false, true
		case c == '\\':
			return w.escaped(from, from+i)
		case c < ' ':
			return 0, 0, false, false
		}
	}
	return 0, 0, false, false
}

// escaped goes on with a string at its first escape.
func (w *walker) escaped(from, at int) (int, int, bool, bool) {
	for ; at < len(w.data); at++ {
		switch c := w.data[at]; {
		case c == '"':
			w.at = at + 1
			return from, at, true, true
		case c == '\\':
			at++
		case c < ' ':
			return 0, 0, false, false
		}
	}
	return 0, 0, false, false
}

// unescaped is what stands between a string's quotes.
func unescaped(text []byte) (s string, ok bool) {
	ok = json.Unmarshal(fmt.Appendf(nil, "\"%s\"", text), &s) == nil
	return s, ok
}

// text reads a string of its own.
func (w *walker) text() string {
	from, to, escaped, _ := w.str()
	if !escaped {
		return string(w.data[from:to])
	}
	s, _ := unescaped(w.data[from:to])
	return s
}

// bare reads up to the next comma, bracket or space.
func (w *walker) bare() string {
	w.next()
	start := w.at
	for w.at < len(w.data) && !strings.ContainsRune(",]} \t\r\n", rune(w.data[w.at])) {
		w.at++
	}
	return string(w.data[start:w.at])
}

// views are strings of the file. Most share the memory of one.
type views struct {
	data    []byte
	at      []int // two for each: where it begins and ends
	escaped map[int]string
}

// add adds the string that is next.
func (v *views) add(w *walker) bool {
	from, to, escaped, ok := w.str()
	return ok && v.put(from, to, escaped)
}

// put adds bytes of a string.
func (v *views) put(from, to int, escaped bool) bool {
	if escaped {
		s, ok := unescaped(v.data[from:to])
		if !ok {
			return false
		}
		if v.escaped == nil {
			v.escaped = map[int]string{}
		}
		v.escaped[len(v.at)/2] = s
	}
	v.at = append(v.at, from, to)
	return true
}

// putPair adds what stands on both sides of a space in a string, which is the only one.
func (v *views) putPair(from, to int, escaped bool) bool {
	space := from + bytes.IndexByte(v.data[from:to], ' ')
	if space < from || bytes.IndexByte(v.data[space+1:to], ' ') >= 0 || !v.put(from, space, escaped) || !v.put(space+1, to, escaped) {
		return false
	}
	right := len(v.at)/2 - 1 // an escape may be a space, too
	return !strings.Contains(v.escaped[right-1], " ") && !strings.Contains(v.escaped[right], " ")
}

func (v *views) strings() []string {
	list := make([]string, len(v.at)/2)
	if len(list) == 0 {
		return list
	}
	first := v.at[0]
	text := string(v.data[first:v.at[len(v.at)-1]])
	for i := range list {
		list[i] = text[v.at[2*i]-first : v.at[2*i+1]-first]
	}
	for i, s := range v.escaped {
		list[i] = s
	}
	return list
}

// vocab reads {"token": id, …}.
func (w *walker) vocab(x *vocabJSON) bool {
	entries := len(w.data[w.at:]) / 64 // or more
	tokens := views{data: w.data, at: make([]int, 0, 2*entries)}
	x.ids = make([]int64, 0, entries)
	if !w.take('{') {
		return false
	}
	for {
		if !tokens.add(w) || !w.take(':') {
			return false
		}
		id, from := int64(0), 0
		w.next()
		for from = w.at; w.at < len(w.data) && w.data[w.at]-'0' <= 9 && w.at-from < 10; w.at++ {
			id = id*10 + int64(w.data[w.at]-'0')
		}
		if w.at == from || w.data[from] == '0' && w.at > from+1 {
			return false
		}
		x.ids = append(x.ids, id)
		if w.take('}') {
			x.tokens = tokens.strings()
			return true
		}
		if !w.take(',') {
			return false
		}
	}
}

// merges reads [["a","b"], …] or ["a b", …].
func (w *walker) merges(x *mergesJSON) bool {
	parts := views{data: w.data, at: make([]int, 0, len(w.data[w.at:])/8)} // or more
	if !w.take('[') {
		return false
	}
	for {
		if w.take('[') {
			if !parts.add(w) || !w.take(',') || !parts.add(w) || !w.take(']') {
				return false
			}
		} else {
			from, to, escaped, ok := w.str()
			if !ok || !parts.putPair(from, to, escaped) {
				return false
			}
		}
		if w.take(']') {
			x.parts = parts.strings()
			return true
		}
		if !w.take(',') {
			return false
		}
	}
}
