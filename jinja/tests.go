package jinja

import "math/big"

// testFunc is a test, behind is.
type testFunc func(ev *evaluator, v value, c *call) value

var tests map[string]testFunc

func init() {
	compare := func(op kind) testFunc {
		return func(ev *evaluator, v value, c *call) value { return ev.compare(op, v, c.bind("test", 1, "other")[0]) }
	}
	is := func(f func(ev *evaluator, v value) bool) testFunc {
		return func(ev *evaluator, v value, c *call) value {
			c.bind("test", 0)
			return f(ev, v)
		}
	}
	parity := func(want int64) func(*evaluator, value) bool {
		return func(ev *evaluator, v value) bool { return ev.equal(ev.binary("%", v, int64(2)), want, 0) }
	}
	tests = map[string]testFunc{
		"odd":  is(parity(1)),
		"even": is(parity(0)),
		"divisibleby": func(ev *evaluator, v value, c *call) value {
			return ev.equal(ev.binary("%", v, c.bind("divisibleby", 1, "num")[0]), int64(0), 0)
		},
		"defined":   is(func(_ *evaluator, v value) bool { _, u := v.(*undefined); return !u }),
		"undefined": is(func(_ *evaluator, v value) bool { _, u := v.(*undefined); return u }),
		"filter":    is(func(_ *evaluator, v value) bool { s, _ := text(v); return filters[s] != nil }),
		"test":      is(func(_ *evaluator, v value) bool { s, _ := text(v); return tests[s] != nil }),
		"none":      is(func(_ *evaluator, v value) bool { return v == none }),
		"boolean":   is(func(_ *evaluator, v value) bool { _, ok := v.(bool); return ok }),
		"false":     is(func(_ *evaluator, v value) bool { return v == false }),
		"true":      is(func(_ *evaluator, v value) bool { return v == true }),
		"integer": is(func(_ *evaluator, v value) bool {
			switch v.(type) {
			case int64, *big.Int:
				return true
			}
			return false
		}),
		"float":  is(func(_ *evaluator, v value) bool { _, ok := v.(float64); return ok }),
		"lower":  is(func(ev *evaluator, v value) bool { return isLower(ev.str(v)) }),
		"upper":  is(func(ev *evaluator, v value) bool { return isUpper(ev.str(v)) }),
		"string": is(func(_ *evaluator, v value) bool { _, ok := text(v); return ok }),
		"mapping": is(func(_ *evaluator, v value) bool {
			_, ok := v.(*dict)
			return ok
		}),
		"number": is(func(_ *evaluator, v value) bool { return isNumber(v) }),
		"sequence": is(func(ev *evaluator, v value) bool {
			switch v.(type) {
			case string, markup, *list, *dict, *rangeValue:
				return true
			case *undefined:
				return true
			}
			return false
		}),
		"iterable": is(func(ev *evaluator, v value) bool { _, ok := ev.iterate(v); return ok }),
		"callable": is(func(_ *evaluator, v value) bool {
			switch v.(type) {
			case *function, *macro, *joiner, *loopValue, *undefined:
				return true
			}
			return false
		}),
		"sameas":  func(ev *evaluator, v value, c *call) value { return same(v, c.bind("sameas", 1, "other")[0]) },
		"escaped": is(func(_ *evaluator, v value) bool { _, ok := v.(markup); return ok }),
		"in":      func(ev *evaluator, v value, c *call) value { return ev.contains(c.bind("in", 1, "seq")[0], v) },
		"==":      compare("=="), "eq": compare("=="), "equalto": compare("=="),
		"!=": compare("!="), "ne": compare("!="),
		">": compare(">"), "gt": compare(">"), "greaterthan": compare(">"),
		">=": compare(">="), "ge": compare(">="),
		"<": compare("<"), "lt": compare("<"), "lessthan": compare("<"),
		"<=": compare("<="), "le": compare("<="),
	}
}

// same is Python's is, for what has one identity there: constants, and values
// that were stored.
func same(a, b value) bool {
	switch a.(type) {
	case *big.Int:
		return false
	}
	return a == b
}
