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
