package grammar

import "slices"

// Members are the members of an object that satisfies a schema, as text between
// tags rather than as JSON, in the schema's order:
//
//	Before + name + AfterName + value + After
//
// Only members that the schema names are written, or, where it names none and
// allows any, some with values that are strings.
//
// A value is text. What it is, its reader finds by the kinds that it expects: the
// text is the first of null (also None), number, boolean, object and array that is
// among these kinds and that the text is; else it is a string. What is written is
// read as a value of the schema: JSON, or the characters of a string, which are no
// text that would be read as another kind.
type Members struct {
	JSON                     []byte // the schema
	Before, AfterName, After string
	// Kinds are the names of JSON Schema's types that a member is read as; none:
	// "string" alone.
	Kinds func(name string) []string
	// Names is a regular expression of the names that may be written. A required one
	// that may not is an error.
	Names string
	// Avoid, where not empty, is a regular expression that matches nowhere in a
	// string, nor in a string of a value that is JSON: what would be read as the end
	// of the value. AvoidLong, a simpler one that matches wherever Avoid does, is for
	// strings whose length is bounded by more than 256 characters.
	Avoid, AvoidLong string
}

func (p Members) build(b *builder, from int32) int32 {
	b.source(len(p.JSON))
	s := newSchemaBuilder(b, p.JSON, false, true)
	s.avoid = p.avoidance(s)
	parts, never := s.flatten([]part{{v: s.root, at: "#"}, ofType("object")})
	for _, p := range parts {
		for _, key := range []string{"anyOf", "oneOf", "enum", "const", "patternProperties"} {
			if p.v.get(key) != nil {
				stop(ErrUnsupported, shown(pointer(p.at, key)), "is not supported where members are written as text: properties are")
			}
		}
	}
	to := b.node()
	if never || s.wants(parts).types&isObject == 0 {
		return to
	}
	names := s.regex(`\A(?:`+p.Names+`)\z`, false, b.what)
	o := s.readObject(parts)
	at := b.branch(from)
	for _, name := range o.names {
		s.tick()
		next := b.node()
		if !names.matches(name) {
			if o.required[name] {
				stop(ErrUnsupported, shown(pointer("#/properties", name)), "has a name that cannot be written in a tag")
			}
			continue
		}
		value := b.literal(b.branch(at), p.Before+name+p.AfterName)
		b.eps(b.literal(s.text(s.member(parts, name), kindsOf(p.Kinds(name)), value), p.After), next)
		if !o.required[name] {
			b.eps(at, next)
		}
		at = next
	}
	if len(o.names) == 0 && !slices.ContainsFunc(parts, func(p part) bool { return p.v.get("additionalProperties") != nil }) {
		loop := b.branch(at)
		name := b.automaton(b.literal(b.branch(loop), p.Before), names, utf8Text)
		value := b.literal(name, p.AfterName)
		b.eps(b.literal(s.text(nil, isString, value), p.After), loop)
		at = loop
	}
	b.eps(at, to)
	s.bodies()
	return to
}

func kindsOf(names []string) (t types) {
	for _, n := range names {
		t |= typeNames[n]
	}
	if t == 0 {
		t = isString
	}
	return t
}

// matches reports whether an automaton accepts a text.
func (n *runeNFA) matches(text string) bool {
	at := map[int32]bool{0: true}
	grow := func() {
		for changed := true; changed; {
			changed = false
			for i := range at {
				for _, to := range n.nodes[i].eps {
					changed = changed || !at[to]
					at[to] = true
				}
			}
		}
	}
	grow()
	for _, r := range text {
		next := make(map[int32]bool)
		for i := range at {
			for _, e := range n.nodes[i].edges {
				if e.lo <= r && r <= e.hi {
					next[e.to] = true
				}
			}
		}
		at = next
		grow()
	}
	for i := range at {
		if n.nodes[i].accept {
			return true
		}
	}
	return false
}

// mostText bounds alternatives inside each other of a value that is text.
const mostText = 16

// text leads over the text of a value that satisfies all parts and is read as one of
// some kinds.
func (s *schemaBuilder) text(parts []part, kinds types, from int32) int32 {
	to := s.node()
	s.textInto(parts, kinds, s.branch(from), to, 0)
	return to
}

func (s *schemaBuilder) textInto(parts []part, kinds types, from, to int32, deep int) {
	flat, never := s.flatten(parts)
	if never {
		return
	}
	if deep > mostText {
		stop(ErrUnsupported, shown(flat[0].at), "refers to itself, or has too many alternatives inside each other")
	}
	for i, p := range flat {
		for _, key := range []string{"anyOf", "oneOf"} {
			if done := key == "anyOf" && p.anyDone || key == "oneOf" && p.oneDone; !done && p.v.get(key) != nil {
				for _, a := range s.alternatives(flat, i, p.list(key), key == "oneOf") {
					s.textInto(a, kinds, s.branch(from), to, deep+1)
				}
				return
			}
		}
	}
	w := s.wants(flat)
	w.types &= kinds
	if w.hasEnum {
		not := s.otherKinds(kinds)
		for _, v := range w.enum {
			switch {
			case v.types()&kinds == 0:
			case v.kind != '"':
				s.eps(s.constant(s.branch(from), v), to)
			case !slices.ContainsFunc(not, func(n *runeNFA) bool { return n.matches(v.text) }):
				s.checkAvoided(v.text)
				s.eps(s.literal(s.branch(from), v.text), to)
			}
		}
		return
	}
	if w.types&isString != 0 {
		s.eps(s.automaton(s.branch(from), s.textOf(w, kinds), utf8Text), to)
	}
	w.types &^= isString
	s.ofTypes(w, flat, from, to)
}

// readAs are the texts that are read as a kind of value, and more that are left out
// for it.
var readAs = []struct {
	kind types
	expr string
}{
	{isNull, `(?i:null|none)`},
	{isInteger | isFraction, `-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?`},
	{isBoolean, `(?i:true|false)`},
	{isObject, `(?s:\{.*)`},
	{isArray, `(?s:\[.*)`},
}

// otherKinds are the texts that are read as another kind than a string; deterministic.
func (s *schemaBuilder) otherKinds(kinds types) (list []*runeNFA) {
	for _, r := range readAs {
		if kinds&r.kind != 0 {
			list = append(list, s.deterministic(s.regex(`\A[ \t\r\n]*`+r.expr+`[ \t\r\n]*\z`, false, s.what), s.what))
		}
	}
	return list
}

// textOf are the characters of a string that is no other kind.
func (s *schemaBuilder) textOf(w *wants, kinds types) *runeNFA {
	n, where := s.stringAutomaton(w)
	n = s.avoid.in(s, s.deterministic(n, where), max(w.length[0], w.length[1]))
	for _, not := range s.otherKinds(kinds) {
		n = s.without(n, not, where)
	}
	return n
}

func (s *schemaBuilder) without(x, y *runeNFA, where string) *runeNFA {
	return s.combine(x, y, func(x, y bool) bool { return x && !y }, where)
}

// avoidance is what no string may have in it; the zero value is nothing.
type avoidance struct {
	all, long *runeNFA // deterministic
	id        string   // tells one from another
}

// longText is the count of characters from which a string is told from what it must
// avoid by fewer states: one for each count would be too many.
const longText = 256

func (p Members) avoidance(s *schemaBuilder) (a avoidance) {
	if p.Avoid == "" {
		return a
	}
	of := func(expr string) *runeNFA { return s.deterministic(s.regex(expr, true, s.what), s.what) }
	return avoidance{of(p.Avoid), of(p.AvoidLong), "\x00avoid\x00" + p.Avoid + "\x00" + p.AvoidLong}
}

// in is what is left of strings, whose automaton is deterministic and counts so many
// characters.
func (a *avoidance) in(s *schemaBuilder, n *runeNFA, counted int) *runeNFA {
	switch {
	case a.all == nil:
		return n
	case counted > longText:
		return s.without(n, a.long, s.what)
	}
	return s.without(n, a.all, s.what)
}

// checkAvoided refuses a constant that would be read as the end of its value.
func (s *schemaBuilder) checkAvoided(text string) {
	if s.avoid.all != nil && s.avoid.all.matches(text) {
		stop(ErrUnsupported, s.what, "has the constant "+quote(text)+", which would be read as the end of its value")
	}
}
