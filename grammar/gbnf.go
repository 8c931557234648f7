package grammar

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

// CompileGBNF compiles llama.cpp's grammar text. The rule root is the whole
// text. Rules that refer to tokens (<name>, <[id]>) are not supported, nor is
// left recursion.
func CompileGBNF(text string, o Options) (*Grammar, error) {
	return composed("the grammar", GBNF(text), o.Limits)
}

// gbnfKind says what a piece of a rule is.
type gbnfKind byte

const (
	gbnfLiteral gbnfKind = iota
	gbnfClass
	gbnfRef
	gbnfSequence
	gbnfChoice
	gbnfRepeat
)

type gbnfItem struct {
	kind     gbnfKind
	text     string
	ranges   []runeRange
	rule     *gbnfRule
	items    []*gbnfItem
	min, max int
}

type gbnfRule struct {
	name string
	line int // where it was first named
	body *gbnfItem
	id   int32
	// size is the nodes that the body takes where it is written out; 0: not known yet.
	size int
}

type gbnfParser struct {
	b     *builder
	text  string
	at    int
	line  int
	depth int
	rules []*gbnfRule // in the order of the text
	known map[string]*gbnfRule
}

func (p *gbnfParser) fail(what string) {
	stop(ErrSyntax, fmt.Sprintf("line %d", p.line), what)
}

func (p *gbnfParser) peek() byte {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

// space passes over white space and comments; over the end of a line only if told to.
func (p *gbnfParser) space(lines bool) {
	for p.at < len(p.text) {
		switch c := p.text[p.at]; {
		case c == '#':
			for p.at < len(p.text) && p.text[p.at] != '\n' && p.text[p.at] != '\r' {
				p.at++
			}
			continue
		case c == '\n' && lines:
			p.line++
		case c == ' ' || c == '\t' || c == '\r' && lines:
		default:
			return
		}
		p.at++
	}
}

func (p *gbnfParser) parse() {
	for p.space(true); p.at < len(p.text); p.space(true) {
		r := p.ref()
		if r.body != nil {
			p.fail("defines rule " + quote(r.name) + " a second time")
		}
		p.space(false)
		if len(p.text)-p.at < 3 || p.text[p.at:p.at+3] != "::=" {
			p.fail("needs ::= after the name " + quote(r.name))
		}
		p.at += 3
		p.space(true)
		r.body = p.choice(false)
		p.rules = append(p.rules, r)
		if c := p.peek(); p.at < len(p.text) && c != '\n' && c != '\r' {
			p.fail("has " + quote(p.text[p.at:]) + " where the next part of a rule or the end of a line is expected")
		}
	}
	if r := p.known["root"]; r == nil || r.body == nil {
		stop(ErrSyntax, p.b.what, "has no rule root")
	}
	for _, r := range p.known {
		if r.body == nil {
			p.undefined()
		}
	}
}

// undefined reports the first rule that is named and not defined.
func (p *gbnfParser) undefined() {
	var first *gbnfRule
	for _, r := range p.known {
		if r.body == nil && (first == nil || r.line < first.line || r.line == first.line && r.name < first.name) {
			first = r
		}
	}
	p.line = first.line
	p.fail("names rule " + quote(first.name) + ", which is not defined")
}

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

func (p *gbnfParser) ref() *gbnfRule {
	from := p.at
	for p.at < len(p.text) && isNameByte(p.text[p.at]) {
		p.at++
	}
	name := p.text[from:p.at]
	if name == "" {
		p.fail("has " + quote(p.text[from:]) + " where a rule's name is expected")
	}
	r := p.known[name]
	if r == nil {
		r = &gbnfRule{name: name, line: p.line}
		p.known[name] = r
	}
	return r
}

func (p *gbnfParser) choice(nested bool) *gbnfItem {
	if p.depth++; p.depth > p.b.Depth {
		stop(ErrLimit, fmt.Sprintf("line %d", p.line), fmt.Sprintf("has more than %d brackets inside each other", p.b.Depth))
	}
	defer func() { p.depth-- }()
	c := &gbnfItem{kind: gbnfChoice, items: []*gbnfItem{p.sequence(nested)}}
	for p.peek() == '|' {
		p.at++
		p.space(true)
		c.items = append(c.items, p.sequence(nested))
	}
	return c
}

func (p *gbnfParser) sequence(nested bool) *gbnfItem {
	s := &gbnfItem{kind: gbnfSequence}
	for ; p.at < len(p.text); p.space(nested) {
		p.b.tick()
		var item *gbnfItem
		switch c := p.peek(); {
		case c == '"':
			item = p.literal()
		case c == '[':
			item = p.class()
		case c == '.':
			p.at++
			item = &gbnfItem{kind: gbnfClass, ranges: anyRune}
		case c == '(':
			p.at++
			p.space(true)
			item = p.choice(true)
			if p.peek() != ')' {
				p.fail("needs a ) that closes a bracket")
			}
			p.at++
		case c == '<' || c == '!':
			stop(ErrUnsupported, fmt.Sprintf("line %d", p.line), "refers to a token, which is not supported: its text in quotes is")
		case isNameByte(c):
			item = &gbnfItem{kind: gbnfRef, rule: p.ref()}
		default:
			return s
		}
		p.space(nested)
		s.items = append(s.items, p.repeats(item, nested))
	}
	return s
}

// repeats takes the signs of repetition behind an item.
func (p *gbnfParser) repeats(item *gbnfItem, nested bool) *gbnfItem {
	for n := 0; ; n++ {
		r := &gbnfItem{kind: gbnfRepeat, items: []*gbnfItem{item}, max: -1}
		switch p.peek() {
		case '*':
			p.at++
		case '+':
			p.at++
			r.min = 1
		case '?':
			p.at++
			r.max = 1
		case '{':
			p.at++
			p.space(nested)
			r.min = p.number()
			p.space(nested)
			if p.peek() == ',' {
				p.at++
				p.space(nested)
				if p.peek() != '}' {
					r.max = p.number()
					p.space(nested)
				}
			} else {
				r.max = r.min
			}
			if p.peek() != '}' {
				p.fail("needs a } that closes a number of repeats")
			}
			p.at++
			if r.max >= 0 && r.max < r.min {
				p.fail(fmt.Sprintf("repeats {%d,%d} times: the second number must not be the smaller one", r.min, r.max))
			}
		default:
			return item
		}
		if n >= p.b.Depth {
			stop(ErrLimit, fmt.Sprintf("line %d", p.line), fmt.Sprintf("has more than %d repeats of one item", p.b.Depth))
		}
		p.space(nested)
		item = r
	}
}

func (p *gbnfParser) number() int {
	from := p.at
	for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
		p.at++
	}
	n, err := strconv.Atoi(p.text[from:p.at])
	if err != nil && p.at == from {
		p.fail("has " + quote(p.text[from:]) + " where a number is expected")
	}
	if err != nil || n > p.b.Nodes {
		stop(ErrLimit, fmt.Sprintf("line %d", p.line), fmt.Sprintf("repeats %.20s times: at most %d are taken", p.text[from:p.at], p.b.Nodes))
	}
	return n
}

func (p *gbnfParser) literal() *gbnfItem {
	p.at++
	var out []byte
	for p.peek() != '"' {
		r := p.char()
		if r >= 0xD800 && r <= 0xDFFF {
			p.fail("has half of a surrogate pair: a character is expected")
		}
		out = utf8.AppendRune(out, r)
	}
	p.at++
	return &gbnfItem{kind: gbnfLiteral, text: string(out)}
}

func (p *gbnfParser) class() *gbnfItem {
	p.at++
	not := p.peek() == '^'
	if not {
		p.at++
	}
	c := &gbnfItem{kind: gbnfClass}
	for p.peek() != ']' {
		r := runeRange{lo: p.char()}
		r.hi = r.lo
		if p.peek() == '-' && p.at+1 < len(p.text) && p.text[p.at+1] != ']' {
			p.at++
			r.hi = p.char()
		}
		if r.hi < r.lo {
			p.fail(fmt.Sprintf("has the range %q to %q, which is the wrong way round", r.lo, r.hi))
		}
		c.ranges = append(c.ranges, r)
	}
	p.at++
	if not {
		c.ranges = complement(c.ranges)
	}
	return c
}

// complement lists the characters that are not in the ranges.
func complement(ranges []runeRange) (out []runeRange) {
	var edges []runeEdge
	for _, r := range ranges {
		edges = append(edges, runeEdge{runeRange: r})
	}
	at := append([]rune{0}, bounds(edges, []runeEdge{{runeRange: anyRune[0]}})...)
	for i := 1; i < len(at); i++ {
		inside := at[i-1] == at[i]
		for _, r := range ranges {
			inside = inside || r.lo <= at[i-1] && at[i-1] <= r.hi
		}
		if !inside {
			out = append(out, runeRange{at[i-1], at[i] - 1})
		}
	}
	return out
}

// char reads a character of a literal or a class.
func (p *gbnfParser) char() rune {
	if p.at >= len(p.text) {
		p.fail("ends inside quotes or brackets")
	}
	if c := p.text[p.at]; c != '\\' {
		r, n := utf8.DecodeRuneInString(p.text[p.at:])
		if r == utf8.RuneError && n == 1 {
			p.fail("is not UTF-8")
		}
		if c == '\n' {
			p.line++
		}
		p.at += n
		return r
	}
	p.at++
	c := p.peek()
	p.at++
	digits := 0
	switch c {
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	case 't':
		return '\t'
	case 'r':
		return '\r'
	case 'n':
		return '\n'
	case '\\', '"', '[', ']', '-', '^':
		return rune(c)
	default:
		p.fail(`has an escape that is not known: \x, \u, \U with digits, \t, \r, \n, \\, \", \[, \] are`)
	}
	if p.at+digits > len(p.text) {
		p.fail(fmt.Sprintf(`needs %d hexadecimal digits after \%c`, digits, c))
	}
	n, err := strconv.ParseUint(p.text[p.at:p.at+digits], 16, 32)
	if err != nil || n > utf8.MaxRune {
		p.fail(fmt.Sprintf(`has \%c%s, which is no character: %d hexadecimal digits up to 10FFFF are expected`, c, quote(p.text[p.at:p.at+digits]), digits))
	}
	p.at += digits
	return rune(n)
}
