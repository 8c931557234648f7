package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// spec is how one value is to be written, by % or by str.format.
type spec struct {
	fill      string
	align     byte // < > ^ = or 0
	sign      byte // + space or 0
	alternate bool
	group     string // "," or "_"
	width     int64
	precision int64 // -1: none
	verb      byte  // 0: none
}

// percent is Python's text % arguments.
func (ev *evaluator) percent(of value, s string, args value) value {
	_, safe := of.(markup)
	tuple, _ := args.(*list)
	var values []value
	if tuple != nil && tuple.tuple {
		values = tuple.items
	} else {
		tuple = nil
		values = []value{args}
	}
	var b strings.Builder
	used, mapped := 0, false
	next := func() value {
		if used >= len(values) {
			fail("not enough arguments for the format string")
		}
		used++
		return values[used-1]
	}
	ev.text(2 * len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		ev.step(1)
		i++
		f := spec{fill: " ", precision: -1}
		var arg value
		if i < len(s) && s[i] == '(' {
			depth, from := 1, i+1
			for i++; i < len(s) && depth > 0; i++ {
				switch s[i] {
				case '(':
					depth++
				case ')':
					depth--
				}
			}
			if depth > 0 {
				fail("incomplete format key")
			}
			d, ok := args.(*dict)
			if !ok {
				fail("a format with names wants a dictionary")
			}
			v, found := d.str(s[from : i-1])
			if !found {
				fail("the format's key %s is not given", quote(s[from:i-1]))
			}
			arg, mapped = v, true
		}
		left, zero := false, false
	flags:
		for ; i < len(s); i++ {
			switch s[i] {
			case '-':
				left = true
			case '+':
				f.sign = '+'
			case ' ':
				if f.sign == 0 {
					f.sign = ' '
				}
			case '#':
				f.alternate = true
			case '0':
				zero = true
			default:
				break flags
			}
		}
		number := func() int64 {
			if i < len(s) && s[i] == '*' {
				i++
				v, ok := small(next())
				if !ok {
					fail("* wants an integer")
				}
				return v
			}
			n := int64(0)
			for ; i < len(s) && isDecimal(s[i]); i++ {
				n = min(n*10+int64(s[i]-'0'), 1<<40)
			}
			return n
		}
		if f.width = number(); f.width < 0 {
			left, f.width = true, -f.width
		}
		if i < len(s) && s[i] == '.' {
			i++
			f.precision = max(number(), 0)
		}
		for i < len(s) && (s[i] == 'h' || s[i] == 'l' || s[i] == 'L') {
			i++
		}
		if i >= len(s) {
			fail("incomplete format")
		}
		if s[i] == '%' {
			b.WriteByte('%')
			continue
		}
		if arg == nil {
			arg = next()
		}
		switch {
		case left:
			f.align = '<'
		case zero && s[i] != 's' && s[i] != 'r' && s[i] != 'a' && s[i] != 'c':
			f.fill, f.align = "0", '='
		default:
			f.align = '>'
		}
		f.verb = s[i]
		b.WriteString(ev.percentOne(&f, arg, safe))
	}
	if used < len(values) && !mapped && (tuple != nil || !hasItems(args)) {
		fail("not all arguments were used by the format string")
	}
	ev.text(b.Len())
	if safe {
		return markup(b.String())
	}
	return b.String()
}

// hasItems reports whether a value has items by key, so that a format need not
// use it.
func hasItems(v value) bool {
	switch v.(type) {
	case *dict, *list, *rangeValue, *undefined:
		return true
	}
	return false
}

func (ev *evaluator) percentOne(f *spec, arg value, safe bool) string {
	switch f.verb {
	case 's', 'r', 'a':
		var t string
		switch {
		case f.verb == 's' && safe:
			t = ev.escaped(arg)
		case f.verb == 's':
			t = ev.str(arg)
		default:
			t = ev.repr(arg)
			if f.verb == 'a' {
				t = asciiOnly(ev, t)
			}
			if safe {
				t = ev.escaped(t)
			}
		}
		return ev.padded(f, ev.cut(t, f.precision))
	case 'c':
		if t, ok := text(arg); ok && runeCount(t) == 1 {
			return ev.padded(f, t)
		}
		i, ok := small(arg)
		if !ok || i < 0 || i > 0x10ffff || i >= 0xd800 && i < 0xe000 {
			fail("%%c wants a character")
		}
		return ev.padded(f, string(rune(i)))
	case 'd', 'i', 'u', 'x', 'X', 'o':
		if x, isFloat := arg.(float64); isFloat && (f.verb == 'd' || f.verb == 'i' || f.verb == 'u') {
			arg = truncate(x)
		}
		i, ok := integer(arg)
		if !ok {
			needDefined(arg)
			fail("%%%c wants a number, not %s", f.verb, quote(typeName(arg)))
		}
		base := map[byte]int{'x': 16, 'X': 16, 'o': 8}[f.verb]
		prefix := ""
		if base == 0 {
			base = 10
		} else if f.alternate {
			prefix = "0" + string(f.verb)
		}
		ev.intText(arg)
		digits := new(big.Int).Abs(i).Text(base)
		if f.verb == 'X' {
			digits = strings.ToUpper(digits)
		}
		if missing := f.precision - int64(len(digits)); missing > 0 {
			digits = ev.repeatText("0", missing) + digits
		}
		return ev.paddedNumber(f, i.Sign() < 0, prefix, digits)
	case 'e', 'E', 'f', 'F', 'g', 'G':
		if !isNumber(arg) {
			wrongType(arg, "a number")
		}
		x := toFloat(arg)
		return ev.paddedNumber(f, math.Signbit(x) && !math.IsNaN(x), "", ev.floatDigits(f, math.Abs(x)))
	}
	fail("unsupported format character %q", rune(f.verb))
	return ""
}

func asciiOnly(ev *evaluator, s string) string {
	ev.text(5 * len(s))
	var b strings.Builder
	for _, r := range s {
		if r < 0x80 {
			b.WriteRune(r)
		} else {
			b.WriteString(escapeRune(r))
		}
	}
	return b.String()
}

// cut shortens a text to so many characters.
func (ev *evaluator) cut(s string, precision int64) string {
	if precision < 0 {
		return s
	}
	return ev.sliceText(s, nil, precision, nil)
}

func (ev *evaluator) padded(f *spec, s string) string {
	how := map[byte]string{'<': "ljust", '>': "rjust", '^': "center"}[f.align]
	if f.align == '^' {
		missing := max(f.width-int64(runeCount(s)), 0)
		ev.times(missing, 4)
		ev.text(len(s))
		return strings.Repeat(f.fill, int(missing/2)) + s + strings.Repeat(f.fill, int(missing-missing/2))
	}
	return ev.pad(how, s, f.width, f.fill)
}

// paddedNumber joins sign, prefix and digits, and pads.
func (ev *evaluator) paddedNumber(f *spec, negative bool, prefix, digits string) string {
	sign := ""
	switch {
	case negative:
		sign = "-"
	case f.sign != 0:
		sign = string(f.sign)
	}
	if f.align == '=' {
		want := f.width - int64(len(sign)+len(prefix))
		if f.group != "" && f.fill == "0" {
			// Zeros that fill are grouped as well.
			head, tail, _ := strings.Cut(digits, ".")
			if tail != "" || strings.HasSuffix(digits, ".") {
				tail = "." + tail
			}
			size := groupSize(f)
			n := int64(len(head))
			ev.times(max(want, 0), 6)
			for n+(n-1)/size+int64(len(tail)) < want {
				n++
			}
			head = strings.Repeat("0", int(n)-len(head)) + head
			return sign + prefix + groupDigits(head, f) + tail
		}
		digits = groupNumber(digits, f)
		return sign + prefix + ev.pad("rjust", digits, want, f.fill)
	}
	return ev.padded(f, sign+prefix+groupNumber(digits, f))
}

// groupNumber groups the digits before the point.
func groupNumber(s string, f *spec) string {
	if f.group == "" {
		return s
	}
	n := 0
	for n < len(s) && (isDecimal(s[n]) || f.verb == 'x' && s[n] >= 'a' && s[n] <= 'f' || f.verb == 'X' && s[n] >= 'A' && s[n] <= 'F') {
		n++
	}
	return groupDigits(s[:n], f) + s[n:]
}

func groupSize(f *spec) int64 {
	if f.verb != 0 && strings.IndexByte("xXob", f.verb) >= 0 {
		return 4
	}
	return 3
}

func groupDigits(s string, f *spec) string {
	size := int(groupSize(f))
	var b strings.Builder
	for i := range len(s) {
		if i > 0 && (len(s)-i)%size == 0 {
			b.WriteString(f.group)
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// floatDigits writes a float that is not negative.
func (ev *evaluator) floatDigits(f *spec, x float64) string {
	up := f.verb >= 'A' && f.verb <= 'Z'
	s := ""
	switch {
	case math.IsInf(x, 0):
		s = "inf"
	case math.IsNaN(x):
		s = "nan"
	default:
		precision := f.precision
		if precision < 0 {
			precision = 6
		}
		if precision > 400 {
			ev.times(precision, 2)
			ev.step(precision)
			if precision > 1<<20 {
				fail("a precision of more than %d digits", 1<<20)
			}
		}
		switch f.verb | 0x20 {
		case 'f':
			s = strconv.FormatFloat(x, 'f', int(precision), 64)
		case 'e':
			s = strconv.FormatFloat(x, 'e', int(precision), 64)
		default:
			s = general(x, int(max(precision, 1)), f.alternate, false)
		}
		if f.alternate && f.verb|0x20 != 'g' && precision == 0 {
			mantissa, exponent, _ := strings.Cut(s, "e")
			s = mantissa + "."
			if exponent != "" {
				s += "e" + exponent
			}
		}
	}
	if up {
		return strings.ToUpper(s)
	}
	return s
}

// general is C's %g; with point, a number without an exponent keeps a digit
// behind the point, as in Python's repr.
func general(x float64, precision int, keepZeros, point bool) string {
	e := strconv.FormatFloat(x, 'e', precision-1, 64)
	at := strings.IndexByte(e, 'e')
	exponent, _ := strconv.Atoi(e[at+1:])
	limit := precision
	if exponent < -4 || exponent >= limit {
		mantissa := e[:at]
		if !keepZeros && strings.Contains(mantissa, ".") {
			mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
		}
		return mantissa + e[at:]
	}
	s := strconv.FormatFloat(x, 'f', max(precision-1-exponent, 0), 64)
	if !keepZeros && strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	if point && !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// truncate is int(x) of a float.
func truncate(x float64) value {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		fail("%s cannot be made an integer", floatRepr(x))
	}
	i, _ := new(big.Float).SetFloat64(math.Trunc(x)).Int(nil)
	return fromBig(i)
}

// format is str.format, whose fields reach into values as templates do.
func (ev *evaluator) format(s string, pos []value, named *call) value {
	f := &formatter{ev: ev, pos: pos, named: named}
	return f.all(s, 2)
}

type formatter struct {
	ev     *evaluator
	pos    []value
	named  *call
	auto   int
	manual bool
}

func (f *formatter) all(s string, depth int) string {
	if depth < 0 {
		fail("format fields are nested too deep")
	}
	f.ev.text(2 * len(s))
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case (c == '{' || c == '}') && i+1 < len(s) && s[i+1] == c:
			b.WriteByte(c)
			i++
		case c == '}':
			fail("single } in a format string")
		case c == '{':
			level, from := 1, i+1
			for i++; i < len(s); i++ {
				if s[i] == '{' {
					level++
				} else if s[i] == '}' {
					if level--; level == 0 {
						break
					}
				}
			}
			if level > 0 {
				fail("single { in a format string")
			}
			b.WriteString(f.field(s[from:i], depth))
		default:
			b.WriteByte(c)
		}
	}
	f.ev.text(b.Len())
	return b.String()
}

// field writes name!conversion:spec.
func (f *formatter) field(s string, depth int) string {
	name, rest, bracket := s, "", false
	for i := range len(s) {
		switch s[i] {
		case '[':
			bracket = true
		case ']':
			bracket = false
		case ':', '!':
			if !bracket {
				name, rest = s[:i], s[i:]
			}
		}
		if rest != "" {
			break
		}
	}
	v := f.value(name)
	ev := f.ev
	if strings.HasPrefix(rest, "!") {
		if len(rest) < 2 || len(rest) > 2 && rest[2] != ':' {
			fail("a format's conversion is one letter")
		}
		switch rest[1] {
		case 's':
			v = ev.str(v)
		case 'r':
			v = ev.repr(v)
		case 'a':
			v = asciiOnly(ev, ev.repr(v))
		default:
			fail("unknown conversion %q in a format", rune(rest[1]))
		}
		rest = rest[2:]
	}
	how := ""
	if rest != "" {
		how = f.all(rest[1:], depth-1)
	}
	return ev.formatValue(v, how)
}

// value finds what a field names: a position or a name, then .attributes and
// [items].
func (f *formatter) value(name string) value {
	end := strings.IndexAny(name, ".[")
	if end < 0 {
		end = len(name)
	}
	first, rest := name[:end], name[end:]
	var v value
	switch {
	case first == "" || every(first, func(r rune) bool { return r >= '0' && r <= '9' }):
		i := f.auto
		if first == "" {
			if f.manual {
				fail("a format cannot count its fields and name their numbers too")
			}
			f.auto++
		} else {
			if f.auto > 0 {
				fail("a format cannot count its fields and name their numbers too")
			}
			f.manual = true
			var err error
			if i, err = strconv.Atoi(first); err != nil {
				fail("field %s of a format is not given", quote(first))
			}
		}
		if i >= len(f.pos) {
			fail("field %d of a format is not given", i)
		}
		v = f.pos[i]
	default:
		for i, n := range f.named.names {
			if n == first {
				v = f.named.named[i]
			}
		}
		if v == nil {
			fail("field %s of a format is not given", quote(first))
		}
	}
	for rest != "" {
		f.ev.step(1)
		if rest[0] == '.' {
			end := strings.IndexAny(rest[1:], ".[")
			if end < 0 {
				end = len(rest) - 1
			}
			if end == 0 {
				fail("an empty attribute in a format")
			}
			v, rest = f.ev.attribute(v, rest[1:1+end]), rest[1+end:]
			continue
		}
		end := strings.IndexByte(rest, ']')
		if rest[0] != '[' || end < 2 {
			fail("a format's field is not understood")
		}
		key := value(rest[1:end])
		if i, ok := parseInt(rest[1:end], 10); ok && every(rest[1:end], func(r rune) bool { return r >= '0' && r <= '9' }) {
			key = i
		}
		v, rest = f.ev.getItem(v, key), rest[end+1:]
	}
	return v
}

// parseSpec reads [[fill]align][sign][#][0][width][group][.precision][type].
func parseSpec(s string) *spec {
	f := &spec{fill: " ", precision: -1}
	runes := []rune(s)
	isAlign := func(r rune) bool { return strings.ContainsRune("<>^=", r) }
	switch {
	case len(runes) > 1 && isAlign(runes[1]):
		f.fill, f.align = string(runes[0]), byte(runes[1])
		runes = runes[2:]
	case len(runes) > 0 && isAlign(runes[0]):
		f.align = byte(runes[0])
		runes = runes[1:]
	}
	take := func(set string) byte {
		if len(runes) > 0 && strings.ContainsRune(set, runes[0]) {
			c := byte(runes[0])
			runes = runes[1:]
			return c
		}
		return 0
	}
	number := func() int64 {
		n := int64(-1)
		for len(runes) > 0 && runes[0] >= '0' && runes[0] <= '9' {
			n = min(max(n, 0)*10+int64(runes[0]-'0'), 1<<40)
			runes = runes[1:]
		}
		return n
	}
	f.sign = take("+- ")
	if f.sign == '-' {
		f.sign = 0
	}
	f.alternate = take("#") != 0
	if take("0") != 0 && f.align == 0 {
		f.fill, f.align = "0", '='
	}
	f.width = max(number(), 0)
	if g := take(",_"); g != 0 {
		f.group = string(g)
	}
	if take(".") != 0 {
		if f.precision = number(); f.precision < 0 {
			fail("a format's precision is missing")
		}
	}
	if len(runes) == 1 && runes[0] < 0x80 {
		f.verb = byte(runes[0])
		runes = nil
	}
	if len(runes) > 0 {
		fail("invalid format %s", quote(s))
	}
	return f
}

// formatValue is Python's format(v, how).
func (ev *evaluator) formatValue(v value, how string) string {
	if how == "" {
		return ev.str(v)
	}
	if _, isBool := v.(bool); isBool {
		i, _ := small(v)
		v = i
	}
	f := parseSpec(how)
	bad := func() { fail("format %s does not fit a %s", quote(how), quote(typeName(v))) }
	if s, ok := text(v); ok {
		if f.verb != 0 && f.verb != 's' || f.sign != 0 || f.alternate || f.group != "" || f.align == '=' && f.fill != "0" {
			bad()
		}
		if f.align == 0 || f.align == '=' {
			f.align = '<'
		}
		return ev.padded(f, ev.cut(s, f.precision))
	}
	if !isNumber(v) {
		bad()
	}
	if f.align == 0 {
		f.align = '>'
	}
	_, isFloat := v.(float64)
	if i, ok := integer(v); ok && (f.verb == 0 || strings.IndexByte("bcdoxXn", f.verb) >= 0) {
		if f.precision >= 0 || f.verb == 'c' && (f.sign != 0 || f.group != "") || f.group == "," && f.verb != 0 && f.verb != 'd' {
			bad()
		}
		ev.intText(v)
		if f.verb == 'c' {
			n, ok := small(v)
			if !ok || n < 0 || n > 0x10ffff || n >= 0xd800 && n < 0xe000 {
				bad()
			}
			return ev.padded(f, string(rune(n)))
		}
		base, prefix := 10, ""
		switch f.verb {
		case 'b':
			base = 2
		case 'o':
			base = 8
		case 'x', 'X':
			base = 16
		}
		if f.alternate && base != 10 {
			prefix = "0" + string(f.verb)
		}
		digits := new(big.Int).Abs(i).Text(base)
		if f.verb == 'X' {
			digits = strings.ToUpper(digits)
		}
		ev.alloc(int64(2 * len(digits)))
		return ev.paddedNumber(f, i.Sign() < 0, prefix, digits)
	}
	x := toFloat(v)
	negative := math.Signbit(x) && !math.IsNaN(x)
	digits := ""
	switch f.verb {
	case 'e', 'E', 'f', 'F', 'g', 'G':
		digits = ev.floatDigits(f, math.Abs(x))
	case 'n':
		digits = ev.floatDigits(&spec{verb: 'g', precision: f.precision}, math.Abs(x))
	case '%':
		digits = ev.floatDigits(&spec{verb: 'f', precision: f.precision, alternate: f.alternate}, math.Abs(x)*100) + "%"
	case 0:
		if !isFloat {
			bad()
		}
		switch {
		case math.IsInf(x, 0) || math.IsNaN(x) || f.precision < 0:
			digits = floatRepr(math.Abs(x))
		default:
			digits = shortGeneral(math.Abs(x), int(max(min(f.precision, 1000), 1)))
		}
	default:
		bad()
	}
	return ev.paddedNumber(f, negative, "", digits)
}

// shortGeneral is the format of a float with a precision and no type: like g,
// but with a digit behind the point, and an exponent one digit earlier.
func shortGeneral(x float64, precision int) string {
	e := strconv.FormatFloat(x, 'e', precision-1, 64)
	at := strings.IndexByte(e, 'e')
	exponent, _ := strconv.Atoi(e[at+1:])
	if exponent >= precision-1 && exponent >= 0 && !(exponent < precision-1) && x != 0 && exponent > precision-2 {
		mantissa := e[:at]
		if strings.Contains(mantissa, ".") {
			mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
		}
		return mantissa + e[at:]
	}
	return general(x, precision, false, true)
}
