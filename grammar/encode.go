package grammar

import (
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
	key := fmt.Sprint(string(enc), ranges)
	t := b.templates[key]
	if t == nil {
		t = b.newTemplate(ranges, enc)
		b.templates[key] = t
	}
	b.place(t, from, to)
}

func (b *builder) place(t *template, from, to int32) {
	first := int32(len(b.nodes)) - 2
	for range t.nodes - 2 {
		b.node()
	}
	at := func(i int) int32 {
		switch i {
		case 0:
			return from
		case 1:
			return to
		}
		return first + int32(i)
	}
	for _, e := range t.edges {
		b.edge(at(e.from), e.lo, e.hi, at(e.to))
	}
}

// newTemplate shares what sequences of bytes have in common at their ends, so
// that any character takes 7 nodes.
func (b *builder) newTemplate(ranges []runeRange, enc encoding) *template {
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
		if enc == utf8Text {
			utf8Sequences(r.lo, r.hi, add)
			continue
		}
		for c := r.lo; c <= min(r.hi, '\\'); c++ {
			if s := jsonEscape(c); s != "" {
				seq := make([]edge, len(s))
				for i := range seq {
					seq[i] = edge{lo: s[i], hi: s[i]}
				}
				add(seq)
			}
		}
		for _, plain := range jsonPlain {
			if lo, hi := max(r.lo, plain.lo), min(r.hi, plain.hi); lo <= hi {
				utf8Sequences(lo, hi, add)
			}
		}
	}
	return t
}

// jsonPlain are the characters that stand for themselves in a JSON string.
var jsonPlain = []runeRange{{' ', '!'}, {'#', '['}, {']', utf8.MaxRune}}

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
