package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"time"
)

// globals are the functions that every template finds.
var globals map[string]value

func init() {
	globals = map[string]value{
		"range":           global("safe_range", globalRange),
		"dict":            &function{name: "dict", show: "<class 'dict'>", class: true, call: globalDict},
		"namespace":       &function{name: "namespace", show: "<class 'jinja2.utils.Namespace'>", class: true, call: globalNamespace},
		"cycler":          &function{name: "cycler", show: "<class 'jinja2.utils.Cycler'>", class: true, call: globalCycler},
		"joiner":          &function{name: "joiner", show: "<class 'jinja2.utils.Joiner'>", class: true, call: globalJoiner},
		"raise_exception": global("raise_exception", globalRaise),
		"strftime_now":    global("strftime_now", globalStrftime),
		"lipsum": global("lipsum", func(*evaluator, *call) value {
			fail("lipsum is not supported: a prompt is not random")
			return nil
		}),
	}
}

func global(name string, f func(*evaluator, *call) value) *function {
	return &function{name: name, show: "<function " + name + " at 0x0>", call: f}
}

func globalRange(ev *evaluator, c *call) value {
	if len(c.names) > 0 {
		fail("range takes no keyword arguments")
	}
	if len(c.pos) < 1 || len(c.pos) > 3 {
		fail("range wants 1 to 3 arguments, not %d", len(c.pos))
	}
	bounds := [3]int64{0, 0, 1}
	for i, v := range c.pos {
		bounds[i] = wantInt(v)
		if bounds[i] > math.MaxInt64/4 || bounds[i] < math.MinInt64/4 {
			fail("range is too big: it may have %d numbers", maxRange)
		}
	}
	if len(c.pos) == 1 {
		bounds[0], bounds[1] = 0, bounds[0]
	}
	if bounds[2] == 0 {
		fail("the step of range() must not be 0")
	}
	n := sliceCount(bounds[0], bounds[1], bounds[2])
	if n > maxRange {
		fail("range is too big: it may have %d numbers", maxRange)
	}
	ev.alloc(48)
	return &rangeValue{bounds[0], bounds[1], bounds[2], n}
}

// globalDict is dict(pairs or a dictionary, name=value…).
func globalDict(ev *evaluator, c *call) value {
	ev.alloc(64)
	d := &dict{}
	if len(c.pos) > 1 {
		fail("dict wants at most 1 argument without a name, not %d", len(c.pos))
	}
	if len(c.pos) == 1 {
		switch from := c.pos[0].(type) {
		case *dict:
			d = ev.copyDict(from)
		case *namespace, *macro:
			fail("dict wants pairs or a dictionary")
		case *undefined: // Python asks it for its keys
			fail("%s", from.says())
		default:
			next := ev.iter(from)
			for v, ok := next(); ok; v, ok = next() {
				pair := ev.slice(v)
				if len(pair.items) != 2 {
					fail("dict wants pairs")
				}
				d.set(ev, pair.items[0], pair.items[1])
			}
		}
	}
	for i, name := range c.names {
		d.set(ev, name, c.named[i])
	}
	return d
}

func globalNamespace(ev *evaluator, c *call) value {
	return &namespace{globalDict(ev, c).(*dict)}
}

func globalCycler(ev *evaluator, c *call) value {
	if len(c.pos) == 0 || len(c.names) > 0 {
		fail("cycler wants at least one item")
	}
	return &cycler{items: c.pos}
}

func globalJoiner(_ *evaluator, c *call) value {
	j := &joiner{sep: ", "}
	if a := c.bind("joiner", 0, "sep"); a[0] != nil {
		j.sep = a[0]
	}
	return j
}

func globalRaise(ev *evaluator, c *call) value {
	a := c.bind("raise_exception", 0, "message")
	if a[0] == nil {
		fail("the template refused the conversation")
	}
	panic(&failure{err: &RaisedError{oneLine(ev.str(a[0]))}})
}

// RaisedError is what a template says with raise_exception.
type RaisedError struct {
	Message string // one line, without control characters
}

// Error is the template's message.
func (e *RaisedError) Error() string { return e.Message }

// globalStrftime is datetime.now().strftime(format), in English as under the
// C locale.
func globalStrftime(ev *evaluator, c *call) value {
	s := wantText(c.bind("strftime_now", 1, "format")[0])
	now := ev.now()
	ev.times(int64(len(s)), 12)
	ev.scan(16 * len(s))
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		bare := s[i] == '-' && i+1 < len(s)
		if bare {
			i++
		}
		part := strftime(now, s[i])
		if bare && len(part) > 1 {
			part = strings.TrimLeft(part[:len(part)-1], "0 ") + part[len(part)-1:]
		}
		b.WriteString(part)
	}
	return b.String()
}

var strftimeLayouts = map[byte]string{'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'h': "Jan", 'd': "02", 'e': "_2", 'm': "01", 'y': "06", 'Y': "2006",
	'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'D': "01/02/06", 'c': "Mon Jan _2 15:04:05 2006",
	'x': "01/02/06", 'X': "15:04:05", 'f': "000000", 'r': "03:04:05 PM"}

func strftime(t time.Time, verb byte) string {
	if layout, ok := strftimeLayouts[verb]; ok {
		if verb == 'f' {
			return fmt.Sprintf("%06d", t.Nanosecond()/1000)
		}
		return t.Format(layout)
	}
	year, week := t.ISOWeek()
	switch verb {
	case 'j':
		return fmt.Sprintf("%03d", t.YearDay())
	case 'u':
		return fmt.Sprint((int(t.Weekday())+6)%7 + 1)
	case 'w':
		return fmt.Sprint(int(t.Weekday()))
	case 'U':
		return fmt.Sprintf("%02d", (t.YearDay()+6-int(t.Weekday()))/7)
	case 'W':
		return fmt.Sprintf("%02d", (t.YearDay()+6-(int(t.Weekday())+6)%7)/7)
	case 'V':
		return fmt.Sprintf("%02d", week)
	case 'G':
		return fmt.Sprint(year)
	case 's':
		return fmt.Sprint(t.Unix())
	case 'z', 'Z':
		return "" // datetime.now() knows no zone
	case 'n':
		return "\n"
	case 't':
		return "\t"
	case '%':
		return "%"
	}
	return "%" + string(verb)
}

// roundNumber is Python's round(x, n).
func (ev *evaluator) roundNumber(x value, n int64) value {
	f, isFloat := x.(float64)
	if isFloat {
		if n > 400 || math.IsInf(f, 0) || math.IsNaN(f) {
			return f
		}
		if n < -400 {
			return math.Copysign(0, f)
		}
		if n >= 0 {
			r, _ := parseFloat(fmt.Sprintf("%.*f", int(n), f))
			return r
		}
		scaled, _ := new(big.Float).SetFloat64(f).Rat(nil)
		p := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(-n), nil))
		i := halfEven(new(big.Rat).Quo(scaled, p))
		r, _ := new(big.Rat).Mul(new(big.Rat).SetInt(i), p).Float64()
		return math.Copysign(r, f)
	}
	i, ok := integer(x)
	if !ok {
		wrongType(x, "a number")
	}
	if n >= 0 {
		return fromBig(new(big.Int).Set(i))
	}
	if n < -maxDigits {
		return int64(0)
	}
	p := new(big.Int).Exp(big.NewInt(10), big.NewInt(-n), nil)
	return fromBig(p.Mul(p, halfEven(new(big.Rat).SetFrac(i, p))))
}

// halfEven rounds to the nearest integer, halves to the even one.
func halfEven(r *big.Rat) *big.Int {
	twice := new(big.Rat).Add(r, big.NewRat(1, 2))
	q, m := new(big.Int).DivMod(twice.Num(), twice.Denom(), new(big.Int))
	if m.Sign() == 0 && q.Bit(0) == 1 {
		q.Sub(q, big.NewInt(1))
	}
	return q
}
