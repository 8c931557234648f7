package grammar

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unicode/utf8"
)

// runeRange is the characters lo to hi, both included.
type runeRange struct{ lo, hi rune }

var anyRune = []runeRange{{0, utf8.MaxRune}}

// encoding is how a character is written in the text.
type encoding byte

const (
	// utf8Text writes characters as UTF-8.
	utf8Text encoding = 'u'
	// jsonOnce writes them as in a JSON string, each in one way: the short
	// escape where there is one, \u00XX for other control characters, else UTF-8.
	jsonOnce encoding = 'j'
)

// A template is the way from one node to another over one character of a
// class. Node 0 is where it begins, node 1 where it ends, the others are made
// anew wherever it is placed.
type template struct {
	nodes int
	edges []templateEdge
}

type templateEdge struct {
	from   int
	lo, hi byte
	to     int
}

// class leads from a node to another over one character of the ranges.
func (b *builder) class(from, to int32, ranges []runeRange, enc encoding) {
	// Single bytes, escapes and longer characters are templates apart: the last are
	// the same for most classes, and those that lead to one node share theirs.
	var single, escaped []runeRange
	long := within(ranges, 0x80, utf8.MaxRune)
	if enc == jsonOnce {
		for _, p := range jsonPlain {
			single = append(single, within(ranges, p.lo, min(p.hi, 0x7F))...)
		}
		for _, e := range jsonEscaped {
			escaped = append(escaped, within(ranges, e.lo, e.hi)...)
		}
	} else {
		single = within(ranges, 0, 0x7F)
	}
	for _, r := range single {
		b.edge(from, byte(r.lo), byte(r.hi), to)
	}
	for _, part := range [][]runeRange{escaped, long} {
		if len(part) > 0 {
			b.place(b.template(part), from, to)
		}
	}
}

// within cuts ranges to lo to hi.
func within(ranges []runeRange, lo, hi rune) (out []runeRange) {
	for _, r := range ranges {
		if r.lo = max(r.lo, lo); r.lo <= min(r.hi, hi) {
			out = append(out, runeRange{r.lo, min(r.hi, hi)})
		}
	}
	return out
}

func (b *builder) template(ranges []runeRange) *template {
	var key []byte
	for _, r := range ranges {
		key = binary.LittleEndian.AppendUint32(key, uint32(r.lo))
		key = binary.LittleEndian.AppendUint32(key, uint32(r.hi))
	}
	t := b.templates[string(key)]
	if t == nil {
		t = b.newTemplate(ranges)
		b.templates[string(key)] = t
	}
	return t
}

type placed struct {
	t  *template
	to int32
}

func (b *builder) place(t *template, from, to int32) {
	// The nodes between lead to one end, wherever they are entered from.
	first, again := b.placed[placed{t, to}]
	if !again {
		first = int32(len(b.nodes))
		for range t.nodes - 2 {
			b.node()
		}
		b.placed[placed{t, to}] = first
	}
	at := func(i int) int32 {
		switch i {
		case 0:
			return from
		case 1:
			return to
		}
		return first + int32(i) - 2
	}
	for _, e := range t.edges {
		if e.from == 0 || !again {
			b.edge(at(e.from), e.lo, e.hi, at(e.to))
		}
	}
}

// newTemplate shares what sequences of bytes have in common at their ends, so
// that any character takes 7 nodes.
func (b *builder) newTemplate(ranges []runeRange) *template {
	t := &template{nodes: 2}
	tails := map[string]int{"": 1}
	var tail func(seq []edge) int
	tail = func(seq []edge) int {
		b.tick()
		key := fmt.Sprint(seq)
		if len(seq) == 0 {
			key = ""
		}
		if n, ok := tails[key]; ok {
			return n
		}
		n := t.nodes
		t.nodes++
		tails[key] = n
		t.edges = append(t.edges, templateEdge{n, seq[0].lo, seq[0].hi, tail(seq[1:])})
		return n
	}
	add := func(seq []edge) {
		e := templateEdge{0, seq[0].lo, seq[0].hi, tail(seq[1:])}
		if !slices.Contains(t.edges, e) {
			t.edges = append(t.edges, e)
		}
	}
	for _, r := range ranges {
		utf8Sequences(max(r.lo, 0x80), r.hi, add)
		for c := r.lo; c <= min(r.hi, 0x7F); c++ { // these are of jsonEscaped
			var seq []edge
			for _, e := range []byte(jsonEscape(c)) {
				seq = append(seq, edge{lo: e, hi: e})
			}
			add(seq)
		}
	}
	return t
}

// jsonPlain are the characters that stand for themselves in a JSON string.
var jsonPlain = []runeRange{{' ', '!'}, {'#', '['}, {']', utf8.MaxRune}}

// jsonEscaped are the others.
var jsonEscaped = []runeRange{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}

// jsonEscape is how a JSON string holds a character that cannot stand for
// itself; "" for the others.
func jsonEscape(r rune) string {
	switch r {
	case '"', '\\':
		return `\` + string(r)
	case '\b':
		return `\b`
	case '\f':
		return `\f`
	case '\n':
		return `\n`
	case '\r':
		return `\r`
	case '\t':
		return `\t`
	}
	if r < ' ' {
		return fmt.Sprintf(`\u%04x`, r)
	}
	return ""
}

// utf8Sequences lists sequences of byte ranges that together are the UTF-8 of
// lo to hi; surrogates have none.
func utf8Sequences(lo, hi rune, add func([]edge)) {
	hi = min(hi, utf8.MaxRune)
	if lo > hi {
		return
	}
	if lo <= 0xDFFF && hi >= 0xD800 {
		utf8Sequences(lo, 0xD7FF, add)
		utf8Sequences(max(lo, 0xE000), hi, add)
		return
	}
	for _, last := range []rune{0x7F, 0x7FF, 0xFFFF} {
		if lo <= last && hi > last {
			utf8Sequences(lo, last, add)
			utf8Sequences(last+1, hi, add)
			return
		}
	}
	// Where a prefix differs, the bytes behind it must run over all their values.
	n := utf8.RuneLen(lo)
	for i := 1; i < n; i++ {
		m := rune(1)<<(6*i) - 1
		if lo&^m == hi&^m {
			continue
		}
		if lo&m != 0 {
			utf8Sequences(lo, lo|m, add)
			utf8Sequences((lo|m)+1, hi, add)
			return
		}
		if hi&m != m {
			utf8Sequences(lo, hi&^m-1, add)
			utf8Sequences(hi&^m, hi, add)
			return
		}
	}
	var first, last [utf8.UTFMax]byte
	utf8.EncodeRune(first[:], lo)
	utf8.EncodeRune(last[:], hi)
	seq := make([]edge, n)
	for i := range seq {
		seq[i] = edge{lo: first[i], hi: last[i]}
	}
	add(seq)
}
