package grammar

import (
	"regexp"
	"slices"
	"strings"
)

// object leads over the objects that satisfy all parts: the members that are
// named, in the order in which they are named, then others.
func (s *schemaBuilder) object(from, to int32, parts []part) {
	o := s.readObject(parts)
	closeObject := s.node()
	s.edge(closeObject, '}', '}', to)

	first := s.space(s.literal(from, "{")) // no member yet
	after := int32(-1)                     // behind a member
	member := func() int32 {               // where the next member's key begins
		at := s.node()
		if first >= 0 {
			s.eps(first, at)
		}
		if after >= 0 {
			s.eps(s.space(s.literal(after, ",")), at)
		}
		return at
	}
	for _, name := range o.names {
		s.tick()
		s.checkAvoided(name)
		value := s.space(s.literal(member(), jsonString(name)+":"))
		behind := s.node()
		s.call(value, s.rule(s.member(parts, name)), behind)
		if o.required[name] {
			first = -1
		} else if after >= 0 {
			s.eps(after, behind)
		}
		after = behind
	}
	others := s.others(parts, o)
	if len(others) > 0 {
		if after < 0 {
			after = s.node()
		}
		at := member()
		for _, other := range others {
			behind := s.node()
			s.call(s.branch(at), other.key, behind)
			s.call(s.space(s.literal(behind, ":")), s.rule(other.value), after)
		}
	}
	if first >= 0 {
		s.eps(first, closeObject)
	}
	if after >= 0 {
		s.eps(s.space(after), closeObject)
	}
}

// objectShape is what all parts say of an object together.
type objectShape struct {
	names    []string // those that are named, in order
	required map[string]bool
	patterns []patternOf
}

type patternOf struct {
	expr, at string
	of       int // the part
	re       *regexp.Regexp
}

func (s *schemaBuilder) readObject(parts []part) *objectShape {
	o := &objectShape{required: make(map[string]bool)}
	named := make(map[string]bool)
	name := func(n string) {
		if !named[n] {
			named[n] = true
			o.names = append(o.names, n)
		}
	}
	for i, p := range parts {
		properties := p.object("properties")
		for _, k := range properties.keys {
			name(k)
		}
		for _, k := range p.object("patternProperties").keys {
			at := pointer(pointer(p.at, "patternProperties"), k)
			re, err := regexp.Compile(k)
			if err != nil {
				s.regex(k, true, shown(at)) // for its message
			}
			o.patterns = append(o.patterns, patternOf{k, at, i, re})
		}
	}
	for _, p := range parts {
		v := p.v.get("required")
		if v == nil {
			continue
		}
		if v.kind != '[' {
			stop(ErrSyntax, shown(pointer(p.at, "required")), "is not a list of names")
		}
		for _, item := range v.items {
			if item.kind != '"' {
				stop(ErrSyntax, shown(pointer(p.at, "required")), "is not a list of names")
			}
			o.required[item.text] = true
			name(item.text)
		}
	}
	return o
}

// object returns a keyword whose value is an object of schemas; an empty one
// where it is absent.
func (p part) object(key string) *value {
	v := p.v.get(key)
	if v == nil {
		return &value{kind: '{'}
	}
	if v.kind != '{' {
		stop(ErrSyntax, shown(pointer(p.at, key)), "is not an object of schemas")
	}
	return v
}

// member lists what the value of a named member must satisfy: of each part its
// schema and those of the patterns that the name matches, or, where there is
// none, additionalProperties.
func (s *schemaBuilder) member(parts []part, name string) (out []part) {
	for _, p := range parts {
		found := false
		if v := p.object("properties").get(name); v != nil {
			out = append(out, p.child(v, "properties", name))
			found = true
		}
		patterns := p.object("patternProperties")
		for i, expr := range patterns.keys {
			s.tick()
			if re, err := regexp.Compile(expr); err == nil && re.MatchString(name) {
				out = append(out, p.child(patterns.items[i], "patternProperties", expr))
				found = true
			}
		}
		if v := p.v.get("additionalProperties"); v != nil && !found {
			out = append(out, p.child(v, "additionalProperties"))
		}
	}
	return out
}

// otherMember is a kind of member that is not named: those of a pattern, or all others.
type otherMember struct {
	key   int32 // the rule of its key, with quotes
	value []part
}

func (s *schemaBuilder) others(parts []part, o *objectShape) (out []otherMember) {
	additional := func(except int) (list []part, never bool) {
		for i, p := range parts {
			if v := p.v.get("additionalProperties"); v != nil && i != except {
				list = append(list, p.child(v, "additionalProperties"))
			}
		}
		_, never = s.flatten(list)
		return list, never
	}
	// What the named members are may not be said again.
	named := words(o.names)
	automata := make([]*runeNFA, len(o.patterns))
	for i, p := range o.patterns {
		automata[i] = s.deterministic(s.regex(p.expr, true, shown(p.at)), shown(p.at))
		for j := range i {
			both := func(x, y bool) bool { return x && y }
			if !s.combine(automata[i], automata[j], both, shown(p.at)).empty() {
				stop(ErrUnsupported, shown(p.at), "matches names that "+quote(o.patterns[j].expr)+" matches, too, which is not supported")
			}
		}
	}
	without := func(x, y bool) bool { return x && !y }
	names := "names\x00" + strings.Join(o.names, "\x00") + "\x00\x00"
	for i, p := range o.patterns {
		value, never := additional(p.of)
		if never {
			continue
		}
		value = append(value, parts[p.of].child(parts[p.of].object("patternProperties").get(p.expr), "patternProperties", p.expr))
		key := s.keyRule(names+"pattern\x00"+p.expr, func() *runeNFA { return s.avoid.in(s, s.combine(automata[i], named, without, shown(p.at)), 0) })
		out = append(out, otherMember{key, value})
	}
	value, never := additional(-1)
	if s.closed && slices.ContainsFunc(parts, func(p part) bool { return p.v.get("properties") != nil }) {
		never = never || !slices.ContainsFunc(parts, func(p part) bool { return p.v.get("additionalProperties") != nil })
	}
	if never {
		return out
	}
	if len(o.names) == 0 && len(o.patterns) == 0 {
		return append(out, otherMember{s.freeString(0, -1, ""), value})
	}
	id := names
	for _, p := range o.patterns {
		id += p.expr + "\x00"
	}
	key := s.keyRule(id, func() *runeNFA {
		n := s.combine(anyText(), named, without, s.what)
		for i, p := range o.patterns {
			n = s.combine(n, automata[i], without, shown(p.at))
		}
		return s.avoid.in(s, n, 0)
	})
	return append(out, otherMember{key, value})
}

// keyRule is the rule of a key that is of an automaton, in quotes, each
// character written in one way: else a named member could be said again by
// escapes.
func (s *schemaBuilder) keyRule(id string, of func() *runeNFA) int32 {
	id += s.avoid.id
	rule, ok := s.strings[id]
	if !ok {
		rule = s.builder.rule("key")
		s.strings[id] = rule
		r := s.builder.rules[rule]
		s.edge(s.automaton(s.literal(r.start, `"`), of(), jsonOnce), '"', '"', r.end)
	}
	return rule
}
