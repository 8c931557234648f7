package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

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
