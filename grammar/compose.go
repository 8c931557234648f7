package grammar

import "strings"

// A Piece is a part of a composed grammar: a source ([Schema], [GBNF], [Regex],
// [Members]), a text ([Literal], [Free]), or pieces together ([Sequence],
// [Choice], [Repeat], [Named], [Shared]). [Compose] makes one automaton of it, so
// where one piece ends and the next begins is a place like any other: a token may
// go across.
type Piece interface {
	// build leads from a node over one text of the piece.
	build(b *builder, from int32) (to int32)
}

// Compose compiles a piece and all that are in it. The limits hold for all of them
// together, but for Bytes and Depth, which hold for each source.
func Compose(p Piece, l Limits) (*Grammar, error) { return composed("the grammar", p, l) }

func composed(what string, p Piece, l Limits) (*Grammar, error) {
	return compile(what, l, func(b *builder) {
		root := b.rules[0]
		b.eps(p.build(b, root.start), root.end)
	})
}

// Literal is that text alone.
type Literal string

func (p Literal) build(b *builder, from int32) int32 { return b.literal(from, string(p)) }

// Sequence is its pieces, one after the other.
type Sequence []Piece

func (p Sequence) build(b *builder, from int32) int32 {
	for _, part := range p {
		from = part.build(b, from)
	}
	return from
}

// Choice is one of its pieces.
type Choice []Piece

func (p Choice) build(b *builder, from int32) int32 {
	to := b.node()
	for _, part := range p {
		b.eps(part.build(b, b.branch(from)), to)
	}
	return to
}

// Repeat is Min to Max texts of a piece; Max < 0 is no bound.
type Repeat struct {
	Piece    Piece
	Min, Max int
}

func (p Repeat) build(b *builder, from int32) int32 {
	return b.repeat(b.branch(from), p.Min, p.Max, func(from int32) int32 { return p.Piece.build(b, from) })
}

// Named gives a piece the name that errors have for it: in place of "#/…" they say
// Name + "#/…". A named piece that no text satisfies is an error, also where there
// are others to choose.
type Named struct {
	Name  string
	Piece Piece
}

func (p Named) build(b *builder, from int32) int32 {
	what := b.what
	b.what = p.Name
	defer func() {
		b.what = what
		if r := recover(); r != nil {
			if e, ok := r.(bail); ok {
				e.err.Where = placeIn(p.Name, e.err.Where)
			}
			panic(r)
		}
	}()
	start := b.branch(from)
	b.named = append(b.named, namedNode{p.Name, start})
	return p.Piece.build(b, start)
}

// placeIn is a place of a named piece.
func placeIn(name, where string) string {
	switch {
	case strings.HasPrefix(where, "#"), where == "":
		return name + where
	case strings.HasPrefix(where, name):
		return where
	}
	return name + ", " + where
}

type namedNode struct {
	name string
	node int32
}

// Shared is a piece that stands at several places and is made once.
type Shared struct{ Piece Piece }

func (p *Shared) build(b *builder, from int32) int32 {
	id, ok := b.shared[p]
	if !ok {
		id = b.rule("shared")
		b.shared[p] = id
		r := b.rules[id]
		b.eps(p.Piece.build(b, r.start), r.end)
	}
	to := b.node()
	b.call(b.branch(from), id, to)
	return to
}

// Schema is JSON that satisfies a schema; see [CompileSchema].
type Schema struct {
	JSON []byte
	// Compact and Closed are those of [Options].
	Compact, Closed bool
	// Object allows objects alone, whatever else the schema does.
	Object bool
}

func (p Schema) build(b *builder, from int32) int32 {
	b.source(len(p.JSON))
	s := newSchemaBuilder(b, p.JSON, p.Compact, p.Closed)
	parts := []part{{v: s.root, at: "#"}}
	if p.Object {
		parts = append(parts, ofType("object"))
	}
	to := b.node()
	b.call(b.branch(from), s.rule(parts), to)
	s.bodies()
	return to
}

// GBNF is a text of a grammar; see [CompileGBNF].
type GBNF string

func (p GBNF) build(b *builder, from int32) int32 {
	b.source(len(p))
	g := &gbnfParser{b: b, text: string(p), line: 1, known: make(map[string]*gbnfRule)}
	g.parse()
	to := b.node()
	b.call(b.branch(from), buildGBNF(b, g), to)
	return to
}

// Regex is a match of a regular expression; see [CompileRegex].
type Regex string

func (p Regex) build(b *builder, from int32) int32 {
	b.source(len(p))
	return b.automaton(b.branch(from), b.regex(string(p), false, b.what), utf8Text)
}

// MayBegin reports whether a text of the grammar may begin with s, or with white
// space (" \t\r\n") and s.
func (g *Grammar) MayBegin(s string) bool {
	e := newEngine(g)
	seen := map[*state]bool{}
	for work := []*state{e.begin()}; len(work) > 0 && len(seen) < 1000; {
		at := work[len(work)-1]
		work = work[:len(work)-1]
		if at == noState || seen[at] {
			continue
		}
		seen[at] = true
		to := at
		for i := 0; i < len(s) && to != noState; i++ {
			to = e.stepState(to, e.g.class[s[i]])
		}
		if to != noState {
			return true
		}
		for _, c := range []byte(" \t\r\n") {
			work = append(work, e.stepState(at, e.g.class[c]))
		}
	}
	return false
}
