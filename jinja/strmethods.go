package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// stringMethod is a method of Python's str.
type stringMethod func(ev *evaluator, s string, c *call) value

func wantText(v value) string {
	s, ok := text(v)
	if !ok {
		wrongType(v, "a string")
	}
	return s
}

// plain makes a method without arguments.
func plain(name string, f func(*evaluator, string) value) stringMethod {
	return func(ev *evaluator, s string, c *call) value {
		c.bind(name, 0)
		ev.scan(len(s))
		return f(ev, s)
	}
}

// mapped makes a method without arguments that returns a changed string.
func mapped(name string, f func(string) string) stringMethod {
	return plain(name, func(ev *evaluator, s string) value {
		ev.text(3 * len(s))
		return f(s)
	})
}

var stringMethods map[string]stringMethod

func init() {
	stringMethods = map[string]stringMethod{
		"upper":        mapped("upper", upper),
		"lower":        mapped("lower", lower),
		"casefold":     mapped("casefold", casefold),
		"capitalize":   mapped("capitalize", capitalize),
		"title":        mapped("title", title),
		"swapcase":     mapped("swapcase", swapcase),
		"strip":        stripMethod("strip", true, true),
		"lstrip":       stripMethod("lstrip", true, false),
		"rstrip":       stripMethod("rstrip", false, true),
		"split":        splitMethod("split", false),
		"rsplit":       splitMethod("rsplit", true),
		"splitlines":   splitlinesMethod,
		"partition":    partitionMethod("partition", false),
		"rpartition":   partitionMethod("rpartition", true),
		"replace":      replaceMethod,
		"join":         func(ev *evaluator, s string, c *call) value { return ev.join(s, onePos(c, "join"), false) },
		"startswith":   affixMethod("startswith", strings.HasPrefix),
		"endswith":     affixMethod("endswith", strings.HasSuffix),
		"removeprefix": removeMethod("removeprefix", strings.TrimPrefix),
		"removesuffix": removeMethod("removesuffix", strings.TrimSuffix),
		"find":         findMethod("find", strings.Index, false),
		"rfind":        findMethod("rfind", strings.LastIndex, false),
		"index":        findMethod("index", strings.Index, true),
		"rindex":       findMethod("rindex", strings.LastIndex, true),
		"count":        countMethod,
		"center":       padMethod("center"),
		"ljust":        padMethod("ljust"),
		"rjust":        padMethod("rjust"),
		"zfill":        zfillMethod,
		"expandtabs":   expandtabsMethod,
		"format":       func(ev *evaluator, s string, c *call) value { return ev.format(s, c.pos, c) },
		"format_map":   formatMapMethod,
		"isalpha":      everyMethod("isalpha", unicode.IsLetter),
		"isdigit":      everyMethod("isdigit", isDigit),
		"isdecimal":    everyMethod("isdecimal", func(r rune) bool { return unicode.Is(unicode.Nd, r) }),
		"isnumeric":    everyMethod("isnumeric", isNumeric),
		"isalnum":      everyMethod("isalnum", func(r rune) bool { return unicode.IsLetter(r) || isNumeric(r) }),
		"isspace":      everyMethod("isspace", isSpace),
		"isprintable":  plain("isprintable", func(_ *evaluator, s string) value { return s == "" || every(s, isPrintable) }),
		"isascii":      plain("isascii", func(_ *evaluator, s string) value { return len(s) == runeCount(s) }),
		"islower":      plain("islower", func(_ *evaluator, s string) value { return isLower(s) }),
		"isupper":      plain("isupper", func(_ *evaluator, s string) value { return isUpper(s) }),
		"istitle":      plain("istitle", func(_ *evaluator, s string) value { return isTitle(s) }),
		"isidentifier": plain("isidentifier", func(_ *evaluator, s string) value {
			r, _ := utf8.DecodeRuneInString(s)
			return s != "" && isIdentStart(r) && every(s, isIdentPart)
		}),
	}
}

func onePos(c *call, name string) value {
	if len(c.names) > 0 {
		fail("%s takes no keyword arguments", name)
	}
	return c.bind(name, 1, "argument")[0]
}

func stripMethod(name string, left, right bool) stringMethod {
	return func(ev *evaluator, s string, c *call) value {
		if len(c.names) > 0 {
			fail("%s takes no keyword arguments", name)
		}
		return ev.strip(s, c.bind(name, 0, "chars")[0], left, right)
	}
}

func (ev *evaluator) strip(s string, chars value, left, right bool) string {
	ev.scan(len(s))
	is := isSpace
	if chars != nil && chars != none {
		set := make(map[rune]bool)
		cut := wantText(chars)
		ev.alloc(16 * int64(len(cut)))
		for _, r := range cut {
			set[r] = true
		}
		is = func(r rune) bool { return set[r] }
	}
	if left {
		s = strings.TrimLeftFunc(s, is)
	}
	if right {
		s = strings.TrimRightFunc(s, is)
	}
	return s
}

func splitMethod(name string, right bool) stringMethod {
	return func(ev *evaluator, s string, c *call) value {
		a := c.bind(name, 0, "sep", "maxsplit")
		limit := int64(-1)
		if a[1] != nil {
			limit = wantInt(a[1])
		}
		if limit < 0 {
			limit = int64(len(s)) + 1
		}
		ev.scan(len(s))
		if a[0] == nil || a[0] == none {
			return ev.splitSpaces(s, limit, right)
		}
		sep := wantText(a[0])
		if sep == "" {
			fail("%s: empty separator", name)
		}
		return ev.splitAt(s, sep, limit, right)
	}
}

func (ev *evaluator) splitAt(s, sep string, limit int64, right bool) *list {
	n := int64(strings.Count(s, sep))
	if n > limit {
		n = limit
	}
	ev.times(n, 16)
	l := ev.newList(int(n) + 1)
	for ; n > 0; n-- {
		var i int
		if right {
			i = strings.LastIndex(s, sep)
			l.items = append(l.items, s[i+len(sep):])
			s = s[:i]
		} else {
			i = strings.Index(s, sep)
			l.items = append(l.items, s[:i])
			s = s[i+len(sep):]
		}
	}
	l.items = append(l.items, s)
	if right {
		reverse(l.items)
	}
	return l
}

func reverse(items []value) {
	for i, j := 0, len(items)-1; i < j; i, j = i+1, j-1 {
		items[i], items[j] = items[j], items[i]
	}
}

func (ev *evaluator) splitSpaces(s string, limit int64, right bool) *list {
	l := ev.newList(0)
	for {
		if right {
			s = strings.TrimRightFunc(s, isSpace)
		} else {
			s = strings.TrimLeftFunc(s, isSpace)
		}
		if s == "" {
			break
		}
		var word string
		switch {
		case int64(len(l.items)) == limit:
			word, s = s, ""
		case right:
			i := strings.LastIndexFunc(s, isSpace)
			if i >= 0 {
				_, size := utf8.DecodeRuneInString(s[i:])
				i += size
			} else {
				i = 0
			}
			word, s = s[i:], s[:i]
		default:
			i := strings.IndexFunc(s, isSpace)
			if i < 0 {
				i = len(s)
			}
			word, s = s[:i], s[i:]
		}
		ev.alloc(16)
		ev.push(l, word)
	}
	if right {
		reverse(l.items)
	}
	return l
}

func isLineEnd(r rune) bool {
	return r >= '\n' && r <= '\r' || r >= 0x1c && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
}

func splitlinesMethod(ev *evaluator, s string, c *call) value {
	a := c.bind("splitlines", 0, "keepends")
	return ev.lines(s, a[0] != nil && truth(a[0]))
}

func (ev *evaluator) lines(s string, keep bool) *list {
	ev.scan(len(s))
	l := ev.newList(0)
	for s != "" {
		i := strings.IndexFunc(s, isLineEnd)
		next := len(s)
		if i < 0 {
			i = len(s)
		} else {
			_, size := utf8.DecodeRuneInString(s[i:])
			next = i + size
			if strings.HasPrefix(s[i:], "\r\n") {
				next++
			}
		}
		line := s[:i]
		if keep {
			line = s[:next]
		}
		ev.alloc(16)
		ev.push(l, line)
		s = s[next:]
	}
	return l
}

func partitionMethod(name string, right bool) stringMethod {
	return func(ev *evaluator, s string, c *call) value {
		sep := wantText(onePos(c, name))
		if sep == "" {
			fail("%s: empty separator", name)
		}
		ev.scan(len(s))
		ev.alloc(48)
		i := strings.Index(s, sep)
		if right {
			i = strings.LastIndex(s, sep)
		}
		switch {
		case i >= 0:
			return ev.tupleOf(s[:i], sep, s[i+len(sep):])
		case right:
			return ev.tupleOf("", "", s)
		}
		return ev.tupleOf(s, "", "")
	}
}

func replaceMethod(ev *evaluator, s string, c *call) value {
	if len(c.names) > 0 {
		fail("replace takes no keyword arguments")
	}
	a := c.bind("replace", 2, "old", "new", "count")
	count := int64(-1)
	if a[2] != nil {
		count = wantInt(a[2])
	}
	return ev.replace(s, wantText(a[0]), wantText(a[1]), count)
}

func (ev *evaluator) replace(s, from, to string, count int64) string {
	ev.scan(len(s))
	n := int64(strings.Count(s, from))
	if from == "" {
		n = int64(runeCount(s)) + 1
	}
	if count >= 0 {
		n = min(n, count)
	}
	if n == 0 {
		return s
	}
	ev.times(n, int64(max(len(to)-len(from), 0)))
	ev.text(len(s))
	ev.step(n >> 3)
	return strings.Replace(s, from, to, int(n))
}

// join puts a separator between texts; with any, other values are printed.
func (ev *evaluator) join(sep string, v value, printed bool) value {
	next := ev.iter(v)
	var b strings.Builder
	for i := 0; ; i++ {
		item, ok := next()
		if !ok {
			break
		}
		var s string
		if printed {
			s = ev.str(item)
		} else if s, ok = text(item); !ok {
			wrongType(item, "a string to be joined")
		}
		if i > 0 {
			ev.text(2 * len(sep))
			b.WriteString(sep)
		}
		ev.text(2 * len(s))
		b.WriteString(s)
	}
	return b.String()
}

func affixMethod(name string, has func(s, part string) bool) stringMethod {
	return func(ev *evaluator, s string, c *call) value {
		if len(c.names) > 0 {
			fail("%s takes no keyword arguments", name)
		}
		a := c.bind(name, 1, "part", "start", "end")
		if a[1] != nil || a[2] != nil {
			n := int64(runeCount(s))
			ev.scan(len(s))
			from, to, _ := sliceBounds(a[1], a[2], nil, n)
			if from > to || a[1] != nil && a[1] != none && wantInt(a[1]) > n {
				return false
			}
			s = ev.sliceText(s, from, to, nil)
		}
		if l, ok := a[0].(*list); ok && l.tuple {
			for _, item := range l.items {
				ev.step(1)
				if has(s, wantText(item)) {
					return true
				}
			}
			return false
		}
		return has(s, wantText(a[0]))
	}
}

func removeMethod(name string, remove func(s, part string) string) stringMethod {
	return func(ev *evaluator, s string, c *call) value { return remove(s, wantText(onePos(c, name))) }
}

func findMethod(name string, find func(s, part string) int, must bool) stringMethod {
	return func(ev *evaluator, s string, c *call) value {
		if len(c.names) > 0 {
			fail("%s takes no keyword arguments", name)
		}
		a := c.bind(name, 1, "sub", "start", "end")
		sub := wantText(a[0])
		ev.scan(len(s))
		n := int64(runeCount(s))
		from, to, _ := sliceBounds(a[1], a[2], nil, n)
		at := -1
		if from <= to && !(a[1] != nil && a[1] != none && wantInt(a[1]) > n) {
			part := ev.sliceText(s, from, to, nil)
			if at = find(part, sub); at >= 0 {
				at = int(from) + runeCount(part[:at])
			}
		}
		if at < 0 && must {
			fail("%s: substring not found", name)
		}
		return int64(at)
	}
}

func countMethod(ev *evaluator, s string, c *call) value {
	if len(c.names) > 0 {
		fail("count takes no keyword arguments")
	}
	a := c.bind("count", 1, "sub", "start", "end")
	sub := wantText(a[0])
	ev.scan(len(s))
	n := int64(runeCount(s))
	from, to, _ := sliceBounds(a[1], a[2], nil, n)
	if from > to || a[1] != nil && a[1] != none && wantInt(a[1]) > n {
		return int64(0)
	}
	return int64(strings.Count(ev.sliceText(s, from, to, nil), sub))
}

func padMethod(name string) stringMethod {
	return func(ev *evaluator, s string, c *call) value {
		if len(c.names) > 0 {
			fail("%s takes no keyword arguments", name)
		}
		a := c.bind(name, 1, "width", "fillchar")
		fill := " "
		if a[1] != nil {
			fill = wantText(a[1])
		}
		return ev.pad(name, s, wantInt(a[0]), fill)
	}
}

func (ev *evaluator) pad(how, s string, width int64, fill string) string {
	if runeCount(fill) != 1 {
		fail("%s: the fill must be one character", how)
	}
	missing := width - int64(runeCount(s))
	ev.scan(len(s))
	if missing <= 0 {
		return s
	}
	ev.times(missing, 4)
	ev.text(len(s))
	left := int64(0)
	switch how {
	case "rjust":
		left = missing
	case "center":
		left = missing/2 + missing&width&1
	}
	return strings.Repeat(fill, int(left)) + s + strings.Repeat(fill, int(missing-left))
}

func zfillMethod(ev *evaluator, s string, c *call) value {
	width := wantInt(onePos(c, "zfill"))
	sign := ""
	if s != "" && (s[0] == '+' || s[0] == '-') {
		sign, s = s[:1], s[1:]
		width--
	}
	return sign + ev.pad("rjust", s, width, "0")
}

func expandtabsMethod(ev *evaluator, s string, c *call) value {
	size := int64(8)
	if a := c.bind("expandtabs", 0, "tabsize"); a[0] != nil {
		size = wantInt(a[0])
	}
	ev.text(len(s))
	var b strings.Builder
	column := int64(0)
	for _, r := range s {
		switch r {
		case '\t':
			if size > 0 {
				n := size - column%size
				ev.times(n, 2)
				b.WriteString(strings.Repeat(" ", int(n)))
				column += n
			}
			continue
		case '\n', '\r':
			column = -1
		}
		column++
		b.WriteRune(r)
	}
	return b.String()
}

func formatMapMethod(ev *evaluator, s string, c *call) value {
	d, ok := onePos(c, "format_map").(*dict)
	if !ok {
		fail("format_map wants a dictionary")
	}
	named := &call{}
	for i, k := range d.keys {
		if name, ok := text(k); ok {
			ev.alloc(48)
			named.names, named.named = append(named.names, name), append(named.named, d.values[i])
		}
	}
	return ev.format(s, nil, named)
}
