package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// fromBig is an integer in its shortest form.
func fromBig(i *big.Int) value {
	if i.IsInt64() {
		return i.Int64()
	}
	if i.BitLen() > maxBits {
		fail("an integer has more than %d bits", maxBits)
	}
	return i
}

// integer returns the integer that v is: bool is one too.
func integer(v value) (*big.Int, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return big.NewInt(1), true
		}
		return new(big.Int), true
	case int64:
		return big.NewInt(v), true
	case *big.Int:
		return v, true
	}
	return nil, false
}

// small returns the int64 that v is.
func small(v value) (int64, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case int64:
		return v, true
	}
	return 0, false
}

// clamped is an integer for counts and indexes, beyond int64 at its ends.
func clamped(v value) (int64, bool) {
	if i, ok := small(v); ok {
		return i, true
	}
	if i, ok := v.(*big.Int); ok {
		if i.Sign() < 0 {
			return math.MinInt64, true
		}
		return math.MaxInt64, true
	}
	return 0, false
}

// wantInt is clamped with an error.
func wantInt(v value) int64 {
	i, ok := clamped(v)
	if !ok {
		wrongType(v, "an integer")
	}
	return i
}

func wrongType(v value, want string) {
	if u, ok := v.(*undefined); ok {
		fail("%s", u.says())
	}
	fail("%s is expected, not %s", want, quote(typeName(v)))
}

func isNumber(v value) bool {
	switch v.(type) {
	case bool, int64, float64, *big.Int:
		return true
	}
	return false
}

func toFloat(v value) float64 {
	switch v := v.(type) {
	case float64:
		return v
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		if math.IsInf(f, 0) {
			fail("the integer is too large for a float")
		}
		return f
	}
	i, _ := small(v)
	return float64(i)
}

// arithmetic computes on numbers.
func (ev *evaluator) arithmetic(op kind, a, b value) value {
	_, aFloat := a.(float64)
	_, bFloat := b.(float64)
	if aFloat || bFloat || op == "/" {
		if op == "/" && !aFloat && !bFloat {
			return divide(a, b)
		}
		return floatOp(op, toFloat(a), toFloat(b))
	}
	if x, ok := small(a); ok {
		if y, ok := small(b); ok {
			if v, ok := smallOp(op, x, y); ok {
				return v
			}
		}
	}
	x, _ := integer(a)
	y, _ := integer(b)
	ev.alloc(int64(x.BitLen()+y.BitLen())/4 + 64)
	ev.step(int64(x.BitLen()+y.BitLen()) >> 6)
	z := new(big.Int)
	switch op {
	case "+":
		z.Add(x, y)
	case "-":
		z.Sub(x, y)
	case "*":
		z.Mul(x, y)
	case "//", "%":
		if y.Sign() == 0 {
			fail("integer division or modulo by zero")
		}
		mod := new(big.Int)
		z.QuoRem(x, y, mod)
		if mod.Sign() != 0 && mod.Sign() != y.Sign() {
			z.Sub(z, big.NewInt(1))
			mod.Add(mod, y)
		}
		if op == "%" {
			return fromBig(mod)
		}
	case "**":
		return ev.power(x, y)
	}
	return fromBig(z)
}

func (ev *evaluator) power(x, y *big.Int) value {
	if y.Sign() < 0 {
		if x.Sign() == 0 {
			fail("0 cannot be raised to a negative power")
		}
		return floatOp("**", toFloat(fromBig(x)), toFloat(fromBig(y)))
	}
	if x.BitLen() > 1 && (!y.IsInt64() || y.Int64() > maxBits || int64(x.BitLen()-1)*y.Int64() > maxBits) {
		fail("an integer has more than %d bits", maxBits)
	}
	if x.BitLen() <= 1 { // -1, 0, 1
		y = new(big.Int).And(y, big.NewInt(1)).Or(new(big.Int).And(y, big.NewInt(1)), big.NewInt(int64(2*min(y.BitLen(), 1))))
	}
	ev.alloc(maxBits / 4)
	return fromBig(new(big.Int).Exp(x, y, nil))
}

// smallOp computes where neither operand nor result leaves int64.
func smallOp(op kind, x, y int64) (value, bool) {
	switch op {
	case "+":
		z := x + y
		return z, (z > x) == (y > 0)
	case "-":
		z := x - y
		return z, (z < x) == (y > 0)
	case "*":
		if x == 0 || y == 0 {
			return int64(0), true
		}
		z := x * y
		return z, z/y == x && !(x == -1 && y == math.MinInt64) && !(y == -1 && x == math.MinInt64)
	case "//", "%":
		if y == 0 {
			fail("integer division or modulo by zero")
		}
		if y == -1 {
			if op == "%" {
				return int64(0), true
			}
			return -x, x != math.MinInt64
		}
		q, r := x/y, x%y
		if r != 0 && (r < 0) != (y < 0) {
			q, r = q-1, r+y
		}
		if op == "%" {
			return r, true
		}
		return q, true
	}
	return nil, false
}

// divide is the true division of integers, rounded once.
func divide(a, b value) value {
	x, _ := integer(a)
	y, _ := integer(b)
	if y.Sign() == 0 {
		fail("division by zero")
	}
	f, _ := new(big.Rat).SetFrac(x, y).Float64()
	if math.IsInf(f, 0) {
		fail("integer division result too large for a float")
	}
	return f
}

func floatOp(op kind, x, y float64) value {
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "/":
		if y == 0 {
			fail("float division by zero")
		}
		return x / y
	case "//", "%":
		if y == 0 {
			fail("float division or modulo by zero")
		}
		mod := math.Mod(x, y)
		div := (x - mod) / y
		if mod != 0 {
			if (y < 0) != (mod < 0) {
				mod += y
				div--
			}
		} else {
			mod = math.Copysign(0, y)
		}
		if op == "%" {
			return mod
		}
		if div == 0 {
			return math.Copysign(0, x/y)
		}
		floor := math.Floor(div)
		if div-floor > 0.5 {
			floor++
		}
		return floor
	}
	if x == 0 && y < 0 {
		fail("0.0 cannot be raised to a negative power")
	}
	if x < 0 && !math.IsInf(x, 0) && y != math.Trunc(y) {
		fail("a negative number to a broken power is complex, which is not supported")
	}
	z := math.Pow(x, y)
	if math.IsInf(z, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
		fail("the result is too large for a float")
	}
	return z
}

// compareNumbers is -1, 0 or 1; ok is false where one is not a number (nan).
func compareNumbers(a, b value) (order int, ok bool) {
	if x, ok := small(a); ok {
		if y, ok := small(b); ok {
			switch {
			case x < y:
				return -1, true
			case x > y:
				return 1, true
			}
			return 0, true
		}
	}
	x, y := exact(a), exact(b)
	if x == nil || y == nil {
		return 0, false
	}
	return x.Cmp(y), true
}

// exact holds a number without rounding; nan is nil.
func exact(v value) *big.Float {
	if f, ok := v.(float64); ok {
		if math.IsNaN(f) {
			return nil
		}
		return big.NewFloat(f)
	}
	i, _ := integer(v)
	return new(big.Float).SetPrec(uint(max(64, i.BitLen()))).SetInt(i)
}

// floatRepr is Python's repr of a float: the shortest digits, with an exponent
// from 1e16 on and below 1e-4, and always a point or an exponent.
func floatRepr(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	if a := math.Abs(f); a != 0 && (a >= 1e16 || a < 1e-4) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// intText is an integer in decimal; Python refuses very long ones too.
func (ev *evaluator) intText(v value) string {
	switch v := v.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case *big.Int:
		ev.step(int64(v.BitLen()))
		ev.text(v.BitLen() / 3)
		s := v.String()
		if len(strings.TrimPrefix(s, "-")) > maxDigits {
			fail("an integer has more than %d digits", maxDigits)
		}
		return s
	}
	i, _ := small(v)
	return strconv.FormatInt(i, 10)
}

// parseInt is Python's int(s, base); ok is false where s is no integer.
func parseInt(s string, base int) (value, bool) {
	s = strings.TrimFunc(s, isSpace)
	sign := ""
	if s != "" && (s[0] == '+' || s[0] == '-') {
		sign, s = s[:1], s[1:]
	}
	prefixed := false
	if len(s) > 1 && s[0] == '0' {
		b := map[byte]int{'b': 2, 'o': 8, 'x': 16}[s[1]|0x20]
		if b != 0 && (base == b || base == 0) {
			s, base, prefixed = s[2:], b, true
			s = strings.TrimPrefix(s, "_")
		}
	}
	if base == 0 {
		if !prefixed && len(s) > 1 && s[0] == '0' && strings.Trim(s, "0_") != "" {
			return nil, false
		}
		base = 10
	}
	n := digits(s, func(c byte) bool {
		d := 99
		switch {
		case c >= '0' && c <= '9':
			d = int(c - '0')
		case c|0x20 >= 'a' && c|0x20 <= 'z':
			d = int(c|0x20-'a') + 10
		}
		return d < base
	})
	if n == 0 || n != len(s) || n > maxDigits {
		return nil, false
	}
	i, ok := new(big.Int).SetString(sign+strings.ReplaceAll(s, "_", ""), base)
	if !ok {
		return nil, false
	}
	return fromBig(i), true
}

// parseFloat is Python's float(s).
func parseFloat(s string) (float64, bool) {
	s = strings.TrimFunc(s, isSpace)
	plain := strings.TrimLeft(s, "+-")
	if len(s)-len(plain) > 1 {
		return 0, false
	}
	switch strings.ToLower(plain) {
	case "inf", "infinity", "nan":
	default:
		if plain == "" || strings.Trim(plain, "0123456789eE.+-_") != "" {
			return 0, false
		}
		for i := range plain {
			if plain[i] == '_' && (i == 0 || i+1 == len(plain) || !isDecimal(plain[i-1]) || !isDecimal(plain[i+1])) {
				return 0, false
			}
		}
		s = strings.ReplaceAll(s, "_", "")
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}
