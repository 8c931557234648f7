package grammar

import (
	"fmt"
	"slices"
	"strings"
)

// stringOf leads over the strings that satisfy a length, patterns and formats.
// Strings of one kind share a rule, so that masks inside them are made once.
func (s *schemaBuilder) stringOf(from, to int32, w *wants) {
	least, most := w.length[0], w.length[1]
	if most >= 0 && least > most {
		return
	}
	if len(w.patterns) == 0 && len(w.formats) == 0 {
		s.call(from, s.freeString(least, most, "a string"), to)
		return
	}
	var ids []string
	for _, p := range w.patterns {
		ids = append(ids, "p"+p.text)
	}
	for _, f := range w.formats {
		ids = append(ids, "f"+f.text)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	s.call(from, s.keyRule(fmt.Sprintf("of\x00%d %d\x00%s", least, most, strings.Join(ids, "\x00")), func() *runeNFA {
		n, where := s.stringAutomaton(w)
		if s.avoid.all != nil {
			n = s.avoid.in(s, s.deterministic(n, where), max(least, most))
		}
		return n
	}), to)
}

// stringAutomaton is that of the characters that satisfy a length, patterns and
// formats; it is deterministic unless it is of one of these alone. where is the last
// of them.
func (s *schemaBuilder) stringAutomaton(w *wants) (n *runeNFA, where string) {
	least, most := w.length[0], w.length[1]
	var all []*runeNFA
	where = s.what
	add := func(n *runeNFA, at string) {
		all = append(all, n)
		where = shown(at)
	}
	for _, f := range w.formats {
		expr, ok := formats[f.text]
		if !ok {
			stop(ErrUnsupported, shown(f.at), "is "+quote(f.text)+", which is not supported: "+formatNames()+" are")
		}
		add(s.regex(`\A(?:`+expr+`)\z`, false, shown(f.at)), f.at)
	}
	for _, p := range w.patterns {
		add(s.regex(p.text, true, shown(p.at)), p.at)
	}
	if least > 0 || most >= 0 {
		all = append(all, s.lengths(least, most, where))
	}
	if len(all) == 0 {
		return anyText(), where
	}
	if len(all) == 1 {
		return all[0], where
	}
	out := s.deterministic(all[0], where)
	for _, n := range all[1:] {
		out = s.combine(out, s.deterministic(n, where), func(x, y bool) bool { return x && y }, where)
	}
	return out, where
}

// freeString is the rule of a string of some characters, in any of JSON's spellings.
func (s *schemaBuilder) freeString(least, most int, name string) int32 {
	if s.avoid.all != nil { // each character in one way, so that it can be seen
		return s.keyRule(fmt.Sprintf("counted\x00%d %d", least, most), func() *runeNFA {
			return s.avoid.in(s, s.lengths(least, most, s.what), max(least, most))
		})
	}
	id := fmt.Sprintf("free\x00%d %d", least, most)
	rule, ok := s.strings[id]
	if !ok {
		if name == "" {
			name = "key"
		}
		rule = s.builder.rule(name)
		s.strings[id] = rule
		r := s.builder.rules[rule]
		end := s.repeat(s.literal(r.start, `"`), least, most, s.freeCharacter)
		s.edge(end, '"', '"', r.end)
	}
	return rule
}

// freeCharacter leads over one character of a string. Its part of \u is a rule:
// it is rare, and long strings are counted in nodes.
func (s *schemaBuilder) freeCharacter(from int32) int32 {
	to := s.node()
	s.class(from, to, jsonPlain, utf8Text)
	escape := s.node()
	s.edge(from, '\\', '\\', escape)
	for _, c := range []byte(`"\/bfnrt`) {
		s.edge(escape, c, c, to)
	}
	u := s.node()
	s.edge(escape, 'u', 'u', u)
	s.call(u, s.unicodeEscape(), to)
	return to
}

// unicodeEscape is the rule of what follows \u: four digits, which are no half
// of a surrogate pair, or a pair.
func (s *schemaBuilder) unicodeEscape() int32 {
	rule, ok := s.strings["escape"]
	if ok {
		return rule
	}
	rule = s.builder.rule("escape")
	s.strings["escape"] = rule
	r := s.builder.rules[rule]
	digit := func(from, to int32, of string) {
		for i := 0; i < len(of); i += 2 {
			s.edge(from, of[i], of[i+1], to)
		}
	}
	digits := func(from int32, kinds ...string) int32 {
		for _, of := range kinds {
			to := s.node()
			digit(from, to, of)
			from = to
		}
		return from
	}
	const any = "09AFaf"
	s.eps(digits(r.start, "09ACacEFef", any, any, any), r.end)
	d := digits(r.start, "DDdd")
	s.eps(digits(d, "07", any, any), r.end)
	low := s.literal(digits(d, "89ABab", any, any), `\u`)
	s.eps(digits(low, "DDdd", "CFcf", any, any), r.end)
	return rule
}
