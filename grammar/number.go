package grammar

import (
	"strconv"
	"strings"
)

// decimal is a number by its digits: bounds are compared exactly, without
// floating point.
type decimal struct {
	negative bool
	whole    string // without leading zeros; "0" at least
	fraction string // without trailing zeros
}

// parseDecimal reads a number of JSON; ok is false for one of more than 60
// digits before or behind the point.
func parseDecimal(text string) (d decimal, ok bool) {
	mantissa, exponent := text, 0
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		n, err := strconv.Atoi(text[i+1:])
		if err != nil || n < -60 || n > 60 {
			return d, false
		}
		mantissa, exponent = text[:i], n
	}
	d.negative = strings.HasPrefix(mantissa, "-")
	mantissa = strings.TrimPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	if len(whole) > 60 || len(fraction) > 60 {
		return d, false
	}
	zeros := strings.Repeat("0", 60)
	digits, point := zeros+whole+fraction+zeros, 60+len(whole)+exponent
	d.whole = strings.TrimLeft(digits[:point], "0")
	d.fraction = strings.TrimRight(digits[point:], "0")
	if d.whole == "" {
		d.whole = "0"
	}
	if d.whole == "0" && d.fraction == "" {
		d.negative = false
	}
	return d, true
}

// compare returns -1, 0 or 1.
func (d decimal) compare(o decimal) int {
	if d.negative != o.negative {
		if d.negative {
			return -1
		}
		return 1
	}
	c := strings.Compare(d.whole, o.whole)
	if len(d.whole) != len(o.whole) {
		c = len(d.whole) - len(o.whole)
	}
	if c == 0 {
		c = strings.Compare(d.fraction, o.fraction)
	}
	if d.negative {
		c = -c
	}
	return min(max(c, -1), 1)
}

func (d decimal) zero() bool { return d.whole == "0" && d.fraction == "" }

// bounded is a range of numbers.
type bounded struct{ low, high *bound }

type bound struct {
	decimal
	open bool // the bound itself is outside
}

// take reads one of the four keywords; of two bounds the tighter one counts.
func (b *bounded) take(key string, v *value, at string) {
	if v.kind != '0' {
		stop(ErrSyntax, shown(at), "is not a number")
	}
	d, ok := parseDecimal(v.text)
	if !ok {
		stop(ErrUnsupported, shown(at), "has more than 60 digits, which is not supported")
	}
	n := &bound{d, strings.HasPrefix(key, "exclusive")}
	side, tighter := &b.low, 1
	if strings.HasSuffix(key, "aximum") {
		side, tighter = &b.high, -1
	}
	if *side == nil || d.compare((*side).decimal) == tighter || d.compare((*side).decimal) == 0 && n.open {
		*side = n
	}
}

// number leads over the numbers of a range; whole ones have no point. Those
// with a bound have no exponent.
func (b *builder) number(from, to int32, r bounded, whole bool) {
	minus := b.node()
	b.edge(from, '-', '-', minus)
	if r.low == nil && r.high == nil {
		b.eps(from, minus)
		b.freeNumber(minus, to, whole)
		return
	}
	// x = m of a positive number, x = -m of a negative one.
	if r.high == nil || !r.high.negative {
		low := r.low
		if low != nil && low.negative {
			low = nil
		}
		b.magnitude(from, to, low, r.high, whole)
	}
	if r.low == nil || r.low.negative || r.low.zero() {
		high := r.high
		if high != nil && !high.negative && !high.zero() {
			high = nil
		}
		b.magnitude(minus, to, high, r.low, whole)
	}
}

// freeNumber leads over a number behind its sign.
func (b *builder) freeNumber(from, to int32, whole bool) {
	digits := b.node()
	b.edge(from, '1', '9', digits)
	b.edge(digits, '0', '9', digits)
	end := b.node()
	b.edge(from, '0', '0', end)
	b.eps(digits, end)
	b.eps(end, to)
	if whole {
		return
	}
	fraction, point := b.node(), b.node()
	b.edge(end, '.', '.', point)
	b.edge(point, '0', '9', fraction)
	b.edge(fraction, '0', '9', fraction)
	b.eps(fraction, to)
	e, sign, power := b.node(), b.node(), b.node()
	for _, from := range []int32{end, fraction} {
		b.edge(from, 'e', 'e', e)
		b.edge(from, 'E', 'E', e)
	}
	b.edge(e, '+', '+', sign)
	b.edge(e, '-', '-', sign)
	b.eps(e, sign)
	b.edge(sign, '0', '9', power)
	b.edge(power, '0', '9', power)
	b.eps(power, to)
}

// comparison is how the digits read so far compare with those of a bound.
type comparison struct {
	read   int  // digits of the part that is being read
	result int8 // of the digits read
	done   bool // nothing that follows changes the result
}

// numberPlace is where the reading of a magnitude stands.
type numberPlace struct {
	phase     byte // 's' start, '0' a leading zero, 'w' whole digits, '.' the point, 'f' fraction
	low, high comparison
}

// magnitude leads over the numbers without a sign between two bounds, by
// comparing digit by digit.
func (b *builder) magnitude(from, to int32, low, high *bound, whole bool) {
	known := make(map[numberPlace]int32)
	var places []numberPlace
	node := func(p numberPlace) int32 {
		if p.low.done {
			p.low.read = 0
		}
		if p.high.done {
			p.high.read = 0
		}
		n, ok := known[p]
		if !ok {
			n = b.node()
			known[p] = n
			places = append(places, p)
		}
		return n
	}
	b.eps(from, node(numberPlace{phase: 's'}))
	for i := 0; i < len(places); i++ {
		p := places[i]
		at := known[p]
		next := func(c byte, phase byte) {
			q := numberPlace{phase, p.low.next(low, p.phase, c), p.high.next(high, p.phase, c)}
			b.edge(at, c, c, node(q))
		}
		if p.phase != '.' && p.phase != 's' {
			l, h := p.low.end(low, p.phase), p.high.end(high, p.phase)
			if (low == nil || l > 0 || l == 0 && !low.open) && (high == nil || h < 0 || h == 0 && !high.open) {
				b.eps(at, to)
			}
		}
		switch p.phase {
		case 's':
			next('0', '0')
			for c := byte('1'); c <= '9'; c++ {
				next(c, 'w')
			}
		case 'w':
			for c := byte('0'); c <= '9'; c++ {
				next(c, 'w')
			}
		case '.', 'f':
			for c := byte('0'); c <= '9'; c++ {
				next(c, 'f')
			}
		}
		if (p.phase == '0' || p.phase == 'w') && !whole {
			next('.', '.')
		}
	}
}

// next reads a digit or the point.
func (c comparison) next(of *bound, phase, b byte) comparison {
	switch {
	case of == nil || c.done:
	case b == '.':
		c.result = c.wholeEnd(of)
		c.done = c.result != 0
		c.read = 0
	case phase == '.' || phase == 'f':
		want := byte('0')
		if c.read < len(of.fraction) {
			want = of.fraction[c.read]
		}
		c.read = min(c.read+1, len(of.fraction))
		c.result = compareBytes(b, want)
		c.done = c.result != 0
	case c.read == len(of.whole): // more digits than the bound has
		c.result, c.done = 1, true
	default:
		if c.result == 0 {
			c.result = compareBytes(b, of.whole[c.read])
		}
		c.read++
	}
	return c
}

// wholeEnd compares the whole digits, all of which are read.
func (c comparison) wholeEnd(of *bound) int8 {
	if c.read < len(of.whole) {
		return -1
	}
	return c.result
}

// end compares a number that ends here.
func (c comparison) end(of *bound, phase byte) int8 {
	switch {
	case of == nil || c.done:
		return c.result
	case phase != 'f':
		c.result = c.wholeEnd(of)
		c.read = 0
	}
	if c.result == 0 && c.read < len(of.fraction) {
		return -1
	}
	return c.result
}

func compareBytes(a, b byte) int8 {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
