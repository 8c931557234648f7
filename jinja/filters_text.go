package jinja

import (
	"fmt"
	"html"
	"strings"
	"unicode"
	"unicode/utf8"
)

func filesizeFilter(_ *evaluator, v value, c *call) value {
	a := c.bind("filesizeformat", 0, "binary")
	var bytes float64
	if s, ok := text(v); ok {
		f, ok := parseFloat(s)
		if !ok {
			fail("%s is no number", quote(s))
		}
		bytes = f
	} else if isNumber(v) {
		bytes = toFloat(v)
	} else {
		wrongType(v, "a number")
	}
	base, suffix := 1000.0, "B"
	if a[0] != nil && truth(a[0]) {
		base, suffix = 1024, "iB"
	}
	if bytes == 1 {
		return "1 Byte"
	}
	if bytes < base {
		return fmt.Sprintf("%s Bytes", fmt.Sprint(truncate(bytes)))
	}
	prefixes := "kMGTPEZY"
	if suffix == "iB" {
		prefixes = "KMGTPEZY"
	}
	unit := base
	for i := range prefixes {
		unit *= base
		if bytes < unit || i == len(prefixes)-1 {
			return fmt.Sprintf("%.1f %c%s", base*bytes/unit, prefixes[i], suffix)
		}
	}
	return ""
}

// titleFilter makes each word begin large; unlike str.title, words are parted
// by spaces, hyphens and opening brackets only.
func titleFilter(ev *evaluator, v value, c *call) value {
	c.bind("title", 0)
	s, _ := text(ev.soft(v))
	ev.text(3 * len(s))
	var b strings.Builder
	for s != "" {
		end := strings.IndexFunc(s, isWordBreak)
		if end < 0 {
			end = len(s)
		}
		if word := s[:end]; word != "" {
			_, size := utf8.DecodeRuneInString(word)
			b.WriteString(upper(word[:size]) + lower(word[size:]))
		}
		s = s[end:]
		end = len(s) - len(strings.TrimLeftFunc(s, isWordBreak))
		b.WriteString(lower(s[:end]))
		s = s[end:]
	}
	return b.String()
}

func isWordBreak(r rune) bool { return isSpace(r) || strings.ContainsRune("-({[<", r) }

func truncateFilter(ev *evaluator, v value, c *call) value {
	a := c.bind("truncate", 0, "length", "killwords", "end", "leeway")
	length, leeway, end := int64(255), int64(5), value("...")
	if a[0] != nil {
		length = wantInt(a[0])
	}
	if a[2] != nil {
		end = a[2]
	}
	if a[3] != nil && a[3] != none {
		leeway = wantInt(a[3])
	}
	keep := length - ev.len(end)
	if keep < 0 || leeway < 0 {
		fail("truncate wants a length of at least that of its end, and no negative leeway")
	}
	if n := ev.len(v); leeway >= n || length >= n-leeway {
		return v
	}
	short := ev.sliceOf(v, nil, keep, nil)
	if a[1] == nil || !truth(a[1]) {
		s, ok := text(short)
		if !ok {
			wrongType(v, "a string")
		}
		if i := strings.LastIndexByte(s, ' '); i >= 0 {
			s = s[:i]
		}
		if _, safe := short.(markup); safe {
			short = markup(s)
		} else {
			short = s
		}
	}
	return ev.binary("+", short, end)
}

func wordcountFilter(ev *evaluator, v value, c *call) value {
	c.bind("wordcount", 0)
	s := ev.str(v)
	ev.scan(8 * len(s))
	n, in := int64(0), false
	for _, r := range s {
		word := r == '_' || unicode.IsLetter(r) || isNumeric(r)
		if word && !in {
			n++
		}
		in = word
	}
	return n
}

// wordwrapFilter breaks lines at spaces, and words that are longer than a
// line. Where Python would break at a hyphen it refuses.
func wordwrapFilter(ev *evaluator, v value, c *call) value {
	a := c.bind("wordwrap", 0, "width", "break_long_words", "wrapstring", "break_on_hyphens")
	width := int64(79)
	if a[0] != nil {
		width = wantInt(a[0])
	}
	if width <= 0 {
		fail("wordwrap wants a width above 0")
	}
	breakLong := a[1] == nil || truth(a[1])
	wrap := "\n"
	if a[2] != nil && a[2] != none {
		wrap = wantText(a[2])
	}
	s, ok := text(v)
	if !ok {
		wrongType(v, "a string")
	}
	if strings.Contains(s, "-") && (a[3] == nil || truth(a[3])) {
		fail("wordwrap of words with hyphens is not supported: set break_on_hyphens to false")
	}
	var out []string
	for _, line := range ev.lines(s, false).items {
		wrapped := ev.wrapLine(line.(string), int(min(width, 1<<40)), breakLong)
		ev.times(int64(len(wrapped)), int64(len(wrap)))
		out = append(out, strings.Join(wrapped, wrap))
	}
	ev.times(int64(len(out)), int64(len(wrap)))
	ev.text(2 * len(s))
	return strings.Join(out, wrap)
}

func (ev *evaluator) wrapLine(s string, width int, breakLong bool) []string {
	ev.times(int64(len(s)), 24)
	var lines []string
	var line []string // words and the spaces between them
	size := 0
	flush := func() {
		if len(line) > 0 && strings.TrimFunc(line[len(line)-1], isASCIISpace) == "" {
			line = line[:len(line)-1]
		}
		if len(line) > 0 {
			lines = append(lines, strings.Join(line, ""))
		}
		line, size = nil, 0
	}
	for s != "" {
		space := isASCIISpace(rune(s[0]))
		end := strings.IndexFunc(s, func(r rune) bool { return isASCIISpace(r) != space })
		if end < 0 {
			end = len(s)
		}
		word := s[:end]
		s = s[end:]
		n := runeCount(word)
		ev.step(int64(1 + n>>4))
		if space && len(line) == 0 && len(lines) > 0 {
			continue
		}
		if size+n > width {
			if n <= width || !breakLong {
				flush()
				if space && len(lines) > 0 {
					continue
				}
			} else {
				for n > 0 {
					ev.step(1)
					room := width - size
					if room < 1 {
						flush()
						room = width
					}
					if n <= room {
						break
					}
					cut := byteAt(word, int64(room), int64(n))
					line = append(line, word[:cut])
					word, n = word[cut:], n-room
					flush()
				}
			}
		}
		line, size = append(line, word), size+n
	}
	flush()
	return lines
}

func isASCIISpace(r rune) bool { return r == ' ' || r >= '\t' && r <= '\r' }

func striptagsFilter(ev *evaluator, v value, c *call) value {
	c.bind("striptags", 0)
	s := ev.str(v)
	ev.text(3 * len(s))
	s = cutBetween(s, "<!--", "-->")
	s = cutBetween(s, "<", ">")
	return html.UnescapeString(strings.Join(strings.FieldsFunc(s, isSpace), " "))
}

func cutBetween(s, open, end string) string {
	var b strings.Builder
	for {
		i := strings.Index(s, open)
		if i < 0 {
			break
		}
		j := strings.Index(s[i+len(open):], end)
		if j < 0 {
			break
		}
		b.WriteString(s[:i])
		s = s[i+len(open)+j+len(end):]
	}
	return b.String() + s
}

func urlencodeFilter(ev *evaluator, v value, c *call) value {
	c.bind("urlencode", 0)
	_, isText := text(v)
	next, ok := ev.iterate(v)
	if isText || !ok {
		return ev.urlQuote(v, "/")
	}
	if d, ok := v.(*dict); ok {
		next = ev.iter(&view{d, "items"})
	}
	var b strings.Builder
	for pair, ok := next(); ok; pair, ok = next() {
		l := ev.slice(pair)
		if len(l.items) != 2 {
			fail("urlencode wants pairs")
		}
		part := strings.ReplaceAll(ev.urlQuote(l.items[0], "")+"="+ev.urlQuote(l.items[1], ""), "%20", "+")
		ev.text(2 * len(part))
		if b.Len() > 0 {
			b.WriteByte('&')
		}
		b.WriteString(part)
	}
	return b.String()
}

func (ev *evaluator) urlQuote(v value, safe string) string {
	s := ev.str(v)
	ev.text(4 * len(s))
	const digits = "0123456789ABCDEF"
	safe += "_.-~"
	b := make([]byte, 0, len(s))
	for i := range len(s) {
		if c := s[i]; isDecimal(c) || c|0x20 >= 'a' && c|0x20 <= 'z' || strings.IndexByte(safe, c) >= 0 {
			b = append(b, c)
		} else {
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return string(b)
}

func xmlattrFilter(ev *evaluator, v value, c *call) value {
	a := c.bind("xmlattr", 0, "autospace")
	d, ok := v.(*dict)
	if !ok {
		wrongType(v, "a dictionary")
	}
	var b strings.Builder
	for i, k := range d.keys {
		if _, missing := d.values[i].(*undefined); missing || d.values[i] == none {
			continue
		}
		key := wantText(k)
		if strings.ContainsAny(key, " \t\n\r\f\v/>=") {
			fail("%s is no name of an attribute", quote(key))
		}
		if b.Len() > 0 || a[0] == nil || truth(a[0]) {
			b.WriteByte(' ')
		}
		part := ev.escaped(k) + `="` + ev.escaped(d.values[i]) + `"`
		ev.text(2 * len(part))
		b.WriteString(part)
	}
	return b.String()
}
