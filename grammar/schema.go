package grammar

import (
	"fmt"
	"strings"
)

// CompileSchema compiles a JSON schema (2020-12, the part of it that
// docs/grammar.md names): the texts are JSON that satisfies it, with members in
// the schema's order. A keyword that is not supported is an error that names it
// by JSON pointer.
func CompileSchema(schema []byte, o Options) (*Grammar, error) {
	return composed("the schema", Schema{JSON: schema, Compact: o.Compact, Closed: o.Closed}, o.Limits)
}

// CompileObject compiles "any JSON object".
func CompileObject(o Options) (*Grammar, error) {
	return CompileSchema([]byte(`{"type": "object"}`), o)
}

type schemaBuilder struct {
	*builder
	compact, closed bool
	root            *value
	rules           map[string]int32 // by what their parts say
	todo            []func()         // the bodies of rules: not made by recursion, as schemas may refer in circles
	avoid           avoidance
}

func newSchemaBuilder(b *builder, schema []byte, compact, closed bool) *schemaBuilder {
	return &schemaBuilder{builder: b, compact: compact, closed: closed, root: b.readJSON(schema), rules: make(map[string]int32)}
}

// bodies makes those of all rules.
func (s *schemaBuilder) bodies() {
	for len(s.todo) > 0 {
		next := s.todo[len(s.todo)-1]
		s.todo = s.todo[:len(s.todo)-1]
		next()
	}
}

// ofType is a part of no schema: {"type": name}.
func ofType(name string) part {
	return part{at: "#", v: &value{kind: '{', keys: []string{"type"}, items: []*value{{kind: '"', text: name, id: -1}}}}
}

// A part is a schema in the text. What a value must satisfy is a list of parts:
// all of them. So allOf, $ref and anyOf beside other keywords need no merging.
type part struct {
	v  *value
	at string // its JSON pointer
	// anyDone, oneDone: the part's anyOf or oneOf is dealt with. flat: its $ref and
	// allOf are, as parts of their own.
	anyDone, oneDone, flat bool
}

// child is a subschema of a part.
func (p part) child(v *value, keys ...string) part {
	at := p.at
	for _, k := range keys {
		at = pointer(at, k)
	}
	return part{v: v, at: at}
}

// list returns the subschemas of a keyword that has a list of them.
func (p part) list(key string) (out []part) {
	v := p.v.get(key)
	if v == nil {
		return nil
	}
	if v.kind != '[' || len(v.items) == 0 && key != "prefixItems" {
		stop(ErrSyntax, shown(pointer(p.at, key)), "is not a list of schemas")
	}
	for i, item := range v.items {
		out = append(out, p.child(item, key, fmt.Sprint(i)))
	}
	return out
}

// keywords that are obeyed, and those that say nothing about a value.
var (
	obeyed = set(`type enum const properties required additionalProperties patternProperties items prefixItems minItems maxItems
		minLength maxLength pattern format minimum maximum exclusiveMinimum exclusiveMaximum anyOf oneOf allOf $ref`)
	ignored = set(`title description default examples $schema $comment $defs definitions deprecated readOnly writeOnly`)
)

func set(words string) map[string]bool {
	m := make(map[string]bool)
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}

func checkKeywords(p part) {
	for _, k := range p.v.keys {
		switch {
		case obeyed[k] || ignored[k] || k == "$id" && p.at == "#":
		case k == "$dynamicRef" || k == "$recursiveRef" || k == "$anchor" || k == "$id":
			stop(ErrUnsupported, shown(pointer(p.at, k)), "is not supported: only $ref to #/… is")
		default:
			stop(ErrUnsupported, shown(pointer(p.at, k)), "is not supported")
		}
	}
}

// flatten follows $ref and allOf, and drops schemas that allow all. never: one
// of them allows nothing.
func (s *schemaBuilder) flatten(parts []part) (flat []part, never bool) {
	seen := make(map[part]bool)
	inside := make(map[string]bool)
	var add func(p part)
	add = func(p part) {
		s.tick()
		switch p.v.kind {
		case 't':
			return
		case 'f':
			never = true
			return
		case '{':
		default:
			stop(ErrSyntax, shown(p.at), "is not a schema: an object, true or false is expected")
		}
		if inside[p.at] {
			stop(ErrUnsupported, shown(p.at), "refers to itself, and to nothing else")
		}
		if seen[p] {
			return
		}
		seen[p] = true
		checkKeywords(p)
		for _, k := range p.v.keys {
			if obeyed[k] && k != "$ref" && k != "allOf" {
				f := p
				f.flat = true
				flat = append(flat, f)
				break
			}
		}
		if p.flat {
			return
		}
		inside[p.at] = true
		if ref := p.v.get("$ref"); ref != nil {
			add(s.resolve(ref, pointer(p.at, "$ref")))
		}
		for _, sub := range p.list("allOf") {
			add(sub)
		}
		delete(inside, p.at)
	}
	for _, p := range parts {
		add(p)
	}
	return flat, never
}

// rule returns the rule of the values that satisfy all parts. Its body may be
// made later.
func (s *schemaBuilder) rule(parts []part) int32 {
	flat, never := s.flatten(parts)
	var key strings.Builder
	for _, p := range flat {
		// Schemas that say the same share a rule, wherever they stand.
		for i, k := range p.v.keys {
			if obeyed[k] && k != "$ref" && k != "allOf" {
				fmt.Fprintf(&key, "%s %d ", k, p.v.items[i].id)
			}
		}
		fmt.Fprintf(&key, "%v %v;", p.anyDone, p.oneDone)
	}
	if never {
		key.Reset()
		key.WriteString("never")
	}
	id, ok := s.rules[key.String()]
	if !ok {
		name := "value"
		if len(parts) > 0 {
			name = shown(parts[len(parts)-1].at)
		}
		id = s.builder.rule(name)
		s.rules[key.String()] = id
		if !never {
			s.todo = append(s.todo, func() { s.body(flat, s.builder.rules[id].start, s.builder.rules[id].end) })
		}
	}
	return id
}

// body leads over the values that satisfy all parts, which are flat.
func (s *schemaBuilder) body(parts []part, from, to int32) {
	for i, p := range parts {
		if !p.anyDone && p.v.get("anyOf") != nil {
			s.choose(s.alternatives(parts, i, p.list("anyOf"), false), from, to)
			return
		}
		if !p.oneDone && p.v.get("oneOf") != nil {
			s.choose(s.alternatives(parts, i, p.list("oneOf"), true), from, to)
			return
		}
	}
	w := s.wants(parts)
	if w.hasEnum {
		for _, v := range w.enum {
			s.eps(s.constant(s.branch(from), v), to)
		}
		return
	}
	s.ofTypes(w, parts, from, to)
}

// ofTypes leads over the values of each type that is wanted.
func (s *schemaBuilder) ofTypes(w *wants, parts []part, from, to int32) {
	for _, t := range []struct {
		of   types
		text string
	}{{isNull, "null"}, {isBoolean, "true"}, {isBoolean, "false"}} {
		if w.types&t.of != 0 {
			s.eps(s.literal(s.branch(from), t.text), to)
		}
	}
	if w.types&(isInteger|isFraction) != 0 {
		s.number(s.branch(from), to, w.bounds, w.types&isFraction == 0)
	}
	if w.types&isString != 0 {
		s.stringOf(s.branch(from), to, w)
	}
	if w.types&isArray != 0 {
		s.array(s.branch(from), to, w, parts)
	}
	if w.types&isObject != 0 {
		s.object(s.branch(from), to, parts)
	}
}

// alternatives are all parts with one of the list, which is a keyword of part i.
func (s *schemaBuilder) alternatives(parts []part, i int, list []part, one bool) (all [][]part) {
	for _, alternative := range list {
		with := append([]part(nil), parts...)
		with[i].anyDone = with[i].anyDone || !one
		with[i].oneDone = with[i].oneDone || one
		all = append(all, append(with, alternative))
	}
	if one {
		for k := range all {
			for j := range k {
				if !s.disjoint(all[j], all[k], 4) {
					stop(ErrUnsupported, shown(pointer(parts[i].at, "oneOf")), fmt.Sprintf("has alternatives %d and %d that may hold both: anyOf is supported there", j, k))
				}
			}
		}
	}
	return all
}

// choose leads over what satisfies one of the lists of parts.
func (s *schemaBuilder) choose(all [][]part, from, to int32) {
	for _, a := range all {
		s.call(s.branch(from), s.rule(a), to)
	}
}

// constant leads over one value.
func (s *schemaBuilder) constant(from int32, v *value) int32 {
	switch v.kind {
	case 't':
		return s.literal(from, "true")
	case 'f':
		return s.literal(from, "false")
	case 'n':
		return s.literal(from, "null")
	case '0':
		return s.literal(from, v.text)
	case '"':
		s.checkAvoided(v.text)
		return s.literal(from, jsonString(v.text))
	}
	from = s.literal(from, string(v.kind))
	if len(v.items) > 0 {
		from = s.space(from)
	}
	for i, item := range v.items {
		if i > 0 {
			from = s.space(s.literal(from, ","))
		}
		if v.kind == '{' {
			s.checkAvoided(v.keys[i])
			from = s.space(s.literal(from, jsonString(v.keys[i])+":"))
		}
		from = s.constant(from, item)
	}
	if len(v.items) > 0 {
		from = s.space(from)
	}
	return s.literal(from, string(v.kind+2)) // ] is two after [, } after {
}

// jsonString writes a string as jsonOnce does.
func jsonString(text string) string {
	out := []byte{'"'}
	for _, r := range text {
		if e := jsonEscape(r); e != "" {
			out = append(out, e...)
		} else {
			out = append(out, string(r)...)
		}
	}
	return string(append(out, '"'))
}

// deepest is the spaces of an indent: without a bound, models drift into
// endless blanks.
const deepest = 32

// space leads over the white space between two parts of JSON: none, a space, or
// a newline with an indent.
func (s *schemaBuilder) space(from int32) int32 {
	if s.compact {
		return from
	}
	if s.indent == 0 {
		s.indent = s.builder.rule("indent")
		r := s.builder.rules[s.indent]
		for _, c := range []byte(" \t") {
			s.eps(s.repeat(s.branch(r.start), 0, deepest, func(from int32) int32 { return s.literal(from, string(c)) }), r.end)
		}
	}
	to := s.node()
	s.eps(from, to)
	s.edge(from, ' ', ' ', to)
	line := s.node()
	s.edge(from, '\n', '\n', line)
	s.call(line, s.indent, to)
	return to
}
