package jinja

import (
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// kind is what a token is; operators are their own text.
type kind string

const (
	tokenEOF           kind = "end of template"
	tokenData          kind = "text"
	tokenBlockBegin    kind = "{%"
	tokenBlockEnd      kind = "%}"
	tokenVariableBegin kind = "{{"
	tokenVariableEnd   kind = "}}"
	tokenName          kind = "name"
	tokenString        kind = "string"
	tokenInteger       kind = "integer"
	tokenFloat         kind = "float"
)

type token struct {
	kind kind
	text string // of data, names and strings
	num  value  // of numbers
	line int
}

// lexer cuts a template into tokens in one pass over its bytes.
type lexer struct {
	src       string
	pos       int
	line      int
	counted   int // position up to which lines are counted
	lineStart bool
	tokens    []token
}

// lex returns the tokens of a template, the last of them tokenEOF. Whitespace
// is treated as under trim_blocks and lstrip_blocks.
func lex(source string) []token {
	l := &lexer{src: normalizeNewlines(source), line: 1, lineStart: true}
	l.src = strings.TrimSuffix(l.src, "\n")
	for l.pos < len(l.src) {
		l.root()
	}
	l.add(token{kind: tokenEOF})
	return l.tokens
}

func normalizeNewlines(s string) string {
	if strings.Contains(s, "\r") {
		s = strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
	}
	return s
}

func (l *lexer) add(t token) {
	l.line += strings.Count(l.src[l.counted:l.pos], "\n")
	l.counted = l.pos
	t.line = l.line
	l.tokens = append(l.tokens, t)
}

func (l *lexer) fail(format string, args ...any) {
	l.add(token{kind: tokenEOF})
	panic(&failure{errorf(format, args...), l.line})
}

// ends notes whether what was taken ends a line: a tag that follows on
// nothing but spaces is then the first of its line.
func (l *lexer) ends(from int) {
	l.lineStart = l.pos > from && l.src[l.pos-1] == '\n'
}

// root reads text up to the next tag, and the tag.
func (l *lexer) root() {
	rest := l.src[l.pos:]
	at := 0
	for {
		i := strings.IndexByte(rest[at:], '{')
		if i < 0 || at+i+1 >= len(rest) {
			l.pos = len(l.src)
			l.data(rest)
			return
		}
		at += i
		if c := rest[at+1]; c == '%' || c == '{' || c == '#' {
			break
		}
		at++
	}
	text, tag := rest[:at], rest[at+1]
	l.pos += at + 2
	raw := -1
	if tag == '%' {
		raw = rawTag(l.src, l.pos)
	}
	sign := l.sign()
	l.data(l.leftStrip(text, sign, tag == '{'))
	switch {
	case raw >= 0:
		l.pos = raw
		l.lineStart = l.src[raw-1] == '\n'
		l.raw()
	case tag == '#':
		l.comment()
	case tag == '{':
		l.add(token{kind: tokenVariableBegin})
		l.lineStart = false
		l.code("}}", tokenVariableEnd)
	default:
		l.add(token{kind: tokenBlockBegin})
		l.lineStart = false
		l.code("%}", tokenBlockEnd)
	}
}

func (l *lexer) data(text string) {
	if text != "" {
		l.add(token{kind: tokenData, text: text})
	}
}

// sign takes the - or + behind the opening of a tag.
func (l *lexer) sign() byte {
	if l.pos < len(l.src) && (l.src[l.pos] == '-' || l.src[l.pos] == '+') {
		l.pos++
		return l.src[l.pos-1]
	}
	return 0
}

// leftStrip is the text before a tag, without the spaces that the tag takes.
func (l *lexer) leftStrip(text string, sign byte, variable bool) string {
	switch {
	case sign == '-':
		return strings.TrimRightFunc(text, isSpace)
	case sign == '+' || variable:
		return text
	}
	start := strings.LastIndexByte(text, '\n') + 1
	if (start > 0 || l.lineStart) && strings.TrimLeftFunc(text[start:], isSpace) == "" {
		return text[:start]
	}
	return text
}

func skipSpaces(s string, at int) int {
	return len(s) - len(strings.TrimLeftFunc(s[at:], isSpace))
}

// rawTag returns the position behind {% raw %}, of which the opening was
// taken, or -1 where another tag stands.
func rawTag(s string, at int) int {
	if at < len(s) && (s[at] == '-' || s[at] == '+') {
		at++
	}
	at = skipSpaces(s, at)
	if !strings.HasPrefix(s[at:], "raw") {
		return -1
	}
	at = skipSpaces(s, at+3)
	if strings.HasPrefix(s[at:], "-%}") {
		return skipSpaces(s, at+3)
	}
	if strings.HasPrefix(s[at:], "%}") {
		return at + 2
	}
	return -1
}

// raw reads up to {% endraw %}.
func (l *lexer) raw() {
	for from := l.pos; ; {
		i := strings.Index(l.src[from:], "{%")
		if i < 0 && l.pos == len(l.src) {
			return // as in Jinja2, which sees the end first
		}
		if i < 0 {
			l.fail("{%% raw %%} without {%% endraw %%}")
		}
		start := from + i
		at := start + 2
		var sign byte
		if at < len(l.src) && (l.src[at] == '-' || l.src[at] == '+') {
			sign = l.src[at]
			at++
		}
		at = skipSpaces(l.src, at)
		if strings.HasPrefix(l.src[at:], "endraw") {
			if end := l.close(skipSpaces(l.src, at+6), "%}", true); end >= 0 {
				text := l.leftStrip(l.src[l.pos:start], sign, false)
				begin := l.pos
				l.pos = end
				l.data(text)
				l.ends(begin)
				return
			}
		}
		from = start + 2
	}
}

// close returns the position behind a closing tag with its sign and the
// spaces or the newline that go with it, or -1.
func (l *lexer) close(at int, tag string, trim bool) int {
	switch rest := l.src[at:]; {
	case strings.HasPrefix(rest, "-"+tag):
		return skipSpaces(l.src, at+3)
	case trim && strings.HasPrefix(rest, "+"+tag):
		return at + 3
	case strings.HasPrefix(rest, tag):
		at += 2
		if trim && at < len(l.src) && l.src[at] == '\n' {
			at++
		}
		return at
	}
	return -1
}

func (l *lexer) comment() {
	i := strings.Index(l.src[l.pos:], "#}")
	if i < 0 && l.pos == len(l.src) {
		return // as in Jinja2, which sees the end first
	}
	if i < 0 {
		l.fail("comment {# without #}")
	}
	at := l.pos + i
	if i > 0 && (l.src[at-1] == '-' || l.src[at-1] == '+') {
		at--
	}
	from := l.pos
	l.pos = l.close(at, "#}", true)
	l.ends(from)
}

// code reads the tokens of a tag up to its end.
func (l *lexer) code(end string, endKind kind) {
	var open []byte // brackets that wait for their pair
	for {
		if len(open) == 0 {
			if at := l.close(l.pos, end, endKind == tokenBlockEnd); at >= 0 {
				l.add(token{kind: endKind})
				from := l.pos
				l.pos = at
				l.ends(from)
				return
			}
		}
		if l.pos >= len(l.src) {
			l.add(token{kind: tokenEOF})
			return
		}
		c, size := utf8.DecodeRuneInString(l.src[l.pos:])
		switch {
		case isSpace(c):
			l.pos += size
		case c >= '0' && c <= '9':
			l.number()
		case isIdentStart(c):
			l.name()
		case c == '"' || c == '\'':
			l.string(byte(c))
		default:
			op := l.operator()
			switch op {
			case "(":
				open = append(open, ')')
			case "[":
				open = append(open, ']')
			case "{":
				open = append(open, '}')
			case ")", "]", "}":
				if len(open) == 0 {
					l.fail("unexpected %q", op)
				}
				if want := open[len(open)-1]; op[0] != want {
					l.fail("unexpected %q, %q is expected", op, string(want))
				}
				open = open[:len(open)-1]
			}
			if len(open) > maxNest {
				l.fail("brackets are nested more than %d deep", maxNest)
			}
			l.add(token{kind: kind(op)})
			l.pos += len(op)
		}
	}
}

func (l *lexer) operator() string {
	rest := l.src[l.pos:]
	if len(rest) > 1 {
		switch rest[:2] {
		case "//", "**", "==", "!=", ">=", "<=":
			return rest[:2]
		}
	}
	if strings.IndexByte("+-/*%~[](){}><=.:|,;", rest[0]) >= 0 {
		return rest[:1]
	}
	r, _ := utf8.DecodeRuneInString(rest)
	l.fail("unexpected character %q", r)
	return ""
}

func isIdentStart(r rune) bool {
	return r == '_' || r < 0x80 && (r|0x20 >= 'a' && r|0x20 <= 'z') || r >= 0x80 && unicode.In(r, unicode.L, unicode.Nl)
}

func isIdentPart(r rune) bool {
	return isIdentStart(r) || r >= '0' && r <= '9' || r >= 0x80 && unicode.In(r, unicode.Mn, unicode.Mc, unicode.Nd, unicode.Pc)
}

func (l *lexer) name() {
	rest := l.src[l.pos:]
	end := len(rest)
	for i, r := range rest {
		if !isIdentPart(r) {
			end = i
			break
		}
	}
	l.add(token{kind: tokenName, text: rest[:end]})
	l.pos += end
}

// digits returns how many bytes at the start of s are digits for which is
// holds, a single _ between two of them allowed.
func digits(s string, is func(byte) bool) int {
	n := 0
	for n < len(s) {
		switch {
		case is(s[n]):
			n++
		case s[n] == '_' && n > 0 && s[n-1] != '_' && n+1 < len(s) && is(s[n+1]):
			n++
		default:
			return n
		}
	}
	return n
}

func isDecimal(c byte) bool { return c >= '0' && c <= '9' }

// number reads a whole number, or a float where one fits.
func (l *lexer) number() {
	rest := l.src[l.pos:]
	if l.pos == 0 || l.src[l.pos-1] != '.' {
		if n := floatLength(rest); n > 0 {
			f, _ := strconv.ParseFloat(strings.ReplaceAll(rest[:n], "_", ""), 64) // out of range is inf, as in Python
			l.add(token{kind: tokenFloat, num: f})
			l.pos += n
			return
		}
	}
	n, base := 0, 10
	if len(rest) > 2 && rest[0] == '0' {
		is := map[byte]func(byte) bool{
			'b': func(c byte) bool { return c == '0' || c == '1' },
			'o': func(c byte) bool { return c >= '0' && c <= '7' },
			'x': func(c byte) bool { return isDecimal(c) || c|0x20 >= 'a' && c|0x20 <= 'f' },
		}[rest[1]|0x20]
		if is != nil {
			from := 2
			if rest[2] == '_' {
				from = 3
			}
			if d := digits(rest[from:], is); d > 0 {
				n, base = from+d, 0
			}
		}
	}
	if n == 0 {
		is := isDecimal
		if rest[0] == '0' {
			is = func(c byte) bool { return c == '0' }
		}
		n = digits(rest, is)
	}
	text := strings.ReplaceAll(rest[:n], "_", "")
	if len(text) > maxDigits {
		l.fail("a number has more than %d digits", maxDigits)
	}
	if base == 10 {
		text = strings.TrimLeft(text[:len(text)-1], "0") + text[len(text)-1:]
	}
	i, ok := new(big.Int).SetString(text, base)
	if !ok {
		l.fail("%q is not a number", text)
	}
	l.add(token{kind: tokenInteger, num: fromBig(i), text: text})
	l.pos += n
}

// floatLength is the length of the float at the start of s, or 0.
func floatLength(s string) int {
	n := digits(s, isDecimal)
	whole := n
	if n < len(s) && s[n] == '.' {
		if d := digits(s[n+1:], isDecimal); d > 0 {
			n += 1 + d
		}
	}
	if n < len(s) && s[n]|0x20 == 'e' {
		e := n + 1
		if e < len(s) && (s[e] == '+' || s[e] == '-') {
			e++
		}
		if d := digits(s[e:], isDecimal); d > 0 {
			return e + d
		}
	}
	if n == whole {
		return 0
	}
	return n
}

func (l *lexer) string(quote byte) {
	for i := l.pos + 1; i < len(l.src); i++ {
		switch l.src[i] {
		case '\\':
			i++
		case quote:
			l.add(token{kind: tokenString, text: l.unescape(l.src[l.pos+1 : i])})
			l.pos = i + 1
			return
		}
	}
	l.fail("a string is not closed")
}

var simpleEscapes = map[byte]string{'\n': "", '\\': `\`, '\'': "'", '"': `"`, 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v"}

// unescape is Python's unicode-escape, with which Jinja2 reads strings.
func (l *lexer) unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			i++
			continue
		}
		c := s[i+1]
		if text, ok := simpleEscapes[c]; ok {
			b.WriteString(text)
			i += 2
			continue
		}
		size, base := 0, 16
		switch {
		case c == 'x':
			size = 2
		case c == 'u':
			size = 4
		case c == 'U':
			size = 8
		case c >= '0' && c <= '7':
			size, base = 1, 8
			for size < 3 && i+1+size < len(s) && s[i+1+size] >= '0' && s[i+1+size] <= '7' {
				size++
			}
			i--
		case c == 'N':
			l.fail(`\N{…} in a string is not supported`)
		case c >= 0x80:
			// Jinja2 escapes what is not ASCII first, so that the backslash
			// takes the one before it.
			r, n := utf8.DecodeRuneInString(s[i+1:])
			b.WriteString(asciiEscape(r))
			i += 1 + n
			continue
		default:
			b.WriteByte('\\')
			i++
			continue
		}
		if i+2+size > len(s) {
			l.fail(`\%c in a string is not followed by %d digits`, c, size)
		}
		code, err := strconv.ParseUint(s[i+2:i+2+size], base, 32)
		if err != nil || code > unicode.MaxRune || strings.ContainsAny(s[i+2:i+2+size], "_+") {
			l.fail(`\%c in a string is not followed by a code point`, c)
		}
		if code >= 0xD800 && code < 0xE000 {
			l.fail(`\u%04x in a string is half of a character`, code)
		}
		b.WriteRune(rune(code))
		i += 2 + size
	}
	return b.String()
}
