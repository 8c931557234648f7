package jinja

import (
	"math"
	"sort"
	"strings"
)

// filterFunc is a filter: of the value before the |.
type filterFunc func(ev *evaluator, v value, c *call) value

var filters map[string]filterFunc

func init() {
	filters = map[string]filterFunc{
		"abs":            absFilter,
		"attr":           attrFilter,
		"batch":          batchFilter,
		"capitalize":     textFilter("capitalize"),
		"center":         centerFilter,
		"count":          lengthFilter,
		"d":              defaultFilter,
		"default":        defaultFilter,
		"dictsort":       dictsortFilter,
		"e":              escapeFilter,
		"escape":         escapeFilter,
		"filesizeformat": filesizeFilter,
		"first":          firstFilter,
		"float":          floatFilter,
		"forceescape":    forceescapeFilter,
		"format":         formatFilter,
		"groupby":        groupbyFilter,
		"indent":         indentFilter,
		"int":            intFilter,
		"items":          itemsFilter,
		"join":           joinFilter,
		"last":           lastFilter,
		"length":         lengthFilter,
		"list":           func(ev *evaluator, v value, c *call) value { c.bind("list", 0); return ev.slice(v) },
		"lower":          textFilter("lower"),
		"map":            mapFilter,
		"max":            extremeFilter("max", 1),
		"min":            extremeFilter("min", -1),
		"pprint":         refusedFilter("pprint", "use tojson"),
		"random":         refusedFilter("random", "a prompt is not random"),
		"reject":         selectFilter("reject", false, true),
		"rejectattr":     selectFilter("rejectattr", true, true),
		"replace":        replaceFilter,
		"reverse":        reverseFilter,
		"round":          roundFilter,
		"safe":           safeFilter,
		"select":         selectFilter("select", false, false),
		"selectattr":     selectFilter("selectattr", true, false),
		"slice":          sliceFilter,
		"sort":           sortFilter,
		"string":         stringFilter,
		"striptags":      striptagsFilter,
		"sum":            sumFilter,
		"title":          titleFilter,
		"tojson":         toJSON,
		"trim":           trimFilter,
		"truncate":       truncateFilter,
		"unique":         uniqueFilter,
		"upper":          textFilter("upper"),
		"urlencode":      urlencodeFilter,
		"urlize":         refusedFilter("urlize", "prompts are no web pages"),
		"wordcount":      wordcountFilter,
		"wordwrap":       wordwrapFilter,
		"xmlattr":        xmlattrFilter,
	}
}

func refusedFilter(name, why string) filterFunc {
	return func(*evaluator, value, *call) value {
		fail("filter %s is not supported: %s", name, why)
		return nil
	}
}

// soft is markupsafe's soft_str: safe HTML stays what it is.
func (ev *evaluator) soft(v value) value {
	if m, ok := v.(markup); ok {
		return m
	}
	return ev.str(v)
}

// onText calls a method of str on what a value prints as.
func (ev *evaluator) onText(v value, name string, c *call) value {
	switch s := ev.soft(v).(type) {
	case markup:
		return ev.markupMethod(stringMethods[name], name, s, c)
	case string:
		return stringMethods[name](ev, s, c)
	}
	return nil
}

func textFilter(name string) filterFunc {
	return func(ev *evaluator, v value, c *call) value {
		c.bind(name, 0)
		return ev.onText(v, name, c)
	}
}

func absFilter(ev *evaluator, v value, c *call) value {
	c.bind("abs", 0)
	if !isNumber(v) {
		wrongType(v, "a number")
	}
	if f, ok := v.(float64); ok {
		return math.Abs(f)
	}
	if i, _ := integer(v); i.Sign() < 0 {
		return ev.arithmetic("-", int64(0), v)
	}
	return ev.unary("+", v)
}

// attrFilter is obj|attr(name): an attribute, never a key.
func attrFilter(ev *evaluator, v value, c *call) value {
	name := wantText(c.bind("attr", 1, "name")[0])
	if _, ok := v.(*undefined); ok {
		return ev.attribute(v, name)
	}
	if found, ok := ev.named(v, name); ok {
		return found
	}
	return ev.noAttribute(v, name)
}

func batchFilter(ev *evaluator, v value, c *call) value {
	a := c.bind("batch", 1, "linecount", "fill_with")
	return ev.generate("do_batch", func() func() (value, bool) {
		next := ev.iter(v)
		size := a[0]
		done := false
		var pending value
		return func() (value, bool) {
			if done {
				return nil, false
			}
			l := ev.newList(0)
			if pending != nil {
				ev.push(l, pending)
				pending = nil
			}
			for {
				item, ok := next()
				if !ok {
					break
				}
				if ev.equal(int64(len(l.items)), size, 0) {
					pending = item
					return l, true
				}
				ev.push(l, item)
			}
			done = true
			if len(l.items) == 0 {
				return nil, false
			}
			if a[1] != nil && a[1] != none {
				for n := wantInt(size); int64(len(l.items)) < n; {
					ev.push(l, a[1])
				}
			}
			return l, true
		}
	})
}

// generate makes a generator whose work begins when it is first asked.
func (ev *evaluator) generate(name string, start func() func() (value, bool)) *generator {
	ev.alloc(128)
	var next func() (value, bool)
	return &generator{name, func() (value, bool) {
		ev.step(1)
		ev.enter()
		defer func() { ev.frames-- }()
		if next == nil {
			next = start()
		}
		return next()
	}}
}

func centerFilter(ev *evaluator, v value, c *call) value {
	a := c.bind("center", 0, "width")
	width := value(int64(80))
	if a[0] != nil {
		width = a[0]
	}
	return ev.onText(v, "center", &call{pos: []value{width}})
}

func lengthFilter(ev *evaluator, v value, c *call) value {
	c.bind("length", 0)
	return ev.len(v)
}

func defaultFilter(_ *evaluator, v value, c *call) value {
	a := c.bind("default", 0, "default_value", "boolean")
	if _, ok := v.(*undefined); ok || a[1] != nil && truth(a[1]) && !truth(v) {
		if a[0] == nil {
			return ""
		}
		return a[0]
	}
	return v
}

// folded is what strings are sorted by where case does not count.
func (ev *evaluator) folded(v value) value {
	if s, ok := text(v); ok {
		ev.text(len(s))
		return lower(s)
	}
	return v
}

func dictsortFilter(ev *evaluator, v value, c *call) value {
	a := c.bind("dictsort", 0, "case_sensitive", "by", "reverse")
	pos := 0
	if a[1] != nil {
		switch a[1] {
		case "key":
		case "value":
			pos = 1
		default:
			fail("dictsort sorts by key or by value")
		}
	}
	d, ok := v.(*dict)
	if !ok {
		wrongType(v, "a dictionary")
	}
	l := ev.slice(&view{d, "items"})
	ev.sort(l, func(item value) value {
		key := item.(*list).items[pos]
		if a[0] == nil || !truth(a[0]) {
			return ev.folded(key)
		}
		return key
	}, a[2] != nil && truth(a[2]))
	return l
}

// sort is Python's sorted with a key.
func (ev *evaluator) sort(l *list, key func(value) value, reversed bool) {
	type pair struct{ key, item value }
	ev.times(int64(len(l.items)), 32)
	pairs := make([]pair, len(l.items))
	for i, item := range l.items {
		pairs[i] = pair{key(item), item}
	}
	sort.SliceStable(pairs, func(i, j int) bool {
		if reversed {
			return ev.less(pairs[j].key, pairs[i].key)
		}
		return ev.less(pairs[i].key, pairs[j].key)
	})
	for i, p := range pairs {
		l.items[i] = p.item
	}
}

func escapeFilter(ev *evaluator, v value, c *call) value {
	c.bind("escape", 0)
	return markup(ev.escaped(v))
}

func forceescapeFilter(ev *evaluator, v value, c *call) value {
	c.bind("forceescape", 0)
	return markup(ev.escaped(ev.str(v)))
}

func safeFilter(ev *evaluator, v value, c *call) value {
	c.bind("safe", 0)
	return markup(ev.str(v))
}

func stringFilter(ev *evaluator, v value, c *call) value {
	c.bind("string", 0)
	return ev.soft(v)
}

func firstFilter(ev *evaluator, v value, c *call) value {
	c.bind("first", 0)
	if item, ok := ev.iter(v)(); ok {
		return item
	}
	return undef("there is no first item: the sequence is empty")
}

func lastFilter(ev *evaluator, v value, c *call) value {
	c.bind("last", 0)
	if item, ok := ev.reversed(v)(); ok {
		return item
	}
	return undef("there is no last item: the sequence is empty")
}

// reversed is Python's reversed.
func (ev *evaluator) reversed(v value) func() (value, bool) {
	var l *list
	switch v := v.(type) {
	case *list:
		l = v
	case string, markup, *rangeValue, *dict, *view:
		l = ev.slice(v)
	case *undefined:
		l = &list{}
	default:
		fail("%s object is not reversible", quote(typeName(v)))
	}
	i := len(l.items)
	return func() (value, bool) {
		if i == 0 {
			return nil, false
		}
		ev.step(1)
		i--
		return l.items[i], true
	}
}

func reverseFilter(ev *evaluator, v value, c *call) value {
	c.bind("reverse", 0)
	switch v := v.(type) {
	case string:
		return ev.sliceText(v, nil, nil, int64(-1))
	case markup:
		return markup(ev.sliceText(string(v), nil, nil, int64(-1)))
	case *generator:
		l := ev.slice(v)
		reverse(l.items)
		return l
	case *list, *rangeValue, *dict, *view, *undefined:
		ev.alloc(64)
		name := map[string]string{"list": "list_reverseiterator", "tuple": "reversed", "Undefined": "reversed", "range": "range_iterator", "dict": "dict_reversekeyiterator",
			"dict_keys": "dict_reversekeyiterator", "dict_values": "dict_reversevalueiterator", "dict_items": "dict_reverseitemiterator"}[typeName(v)]
		return &generator{name, ev.reversed(v)}
	}
	wrongType(v, "a sequence")
	return nil
}

func floatFilter(_ *evaluator, v value, c *call) value {
	a := c.bind("float", 0, "default")
	needDefined(v)
	if s, ok := text(v); ok {
		if f, ok := parseFloat(s); ok {
			return f
		}
	} else if isNumber(v) {
		return toFloat(v)
	}
	if a[0] != nil {
		return a[0]
	}
	return 0.0
}

func intFilter(ev *evaluator, v value, c *call) value {
	a := c.bind("int", 0, "default", "base")
	needDefined(v)
	base := int64(10)
	if a[1] != nil {
		base = wantInt(a[1])
	}
	switch v := v.(type) {
	case string, markup:
		s, _ := text(v)
		ev.step(int64(min(len(s), maxDigits)))
		if base == 0 || base >= 2 && base <= 36 {
			if i, ok := parseInt(s, int(base)); ok {
				return i
			}
		}
		if f, ok := parseFloat(s); ok && !math.IsNaN(f) {
			return truncate(f)
		}
	case float64:
		if !math.IsNaN(v) {
			return truncate(v)
		}
	default:
		if i, ok := integer(v); ok {
			return fromBig(i)
		}
	}
	if a[0] != nil {
		return a[0]
	}
	return int64(0)
}

// formatFilter is text|format(arguments), by %.
func formatFilter(ev *evaluator, v value, c *call) value {
	if len(c.pos) > 0 && len(c.names) > 0 {
		fail("format takes arguments with or without names, not both")
	}
	var args value = ev.tupleOf(c.pos...)
	if len(c.names) > 0 {
		args = globalDict(ev, &call{names: c.names, named: c.named})
	}
	s, _ := text(ev.soft(v))
	return ev.percent(ev.soft(v), s, args)
}

func indentFilter(ev *evaluator, v value, c *call) value {
	a := c.bind("indent", 0, "width", "first", "blank")
	indention, isText := "    ", false
	if a[0] != nil {
		if indention, isText = text(a[0]); !isText {
			indention = ev.repeatText(" ", wantInt(a[0]))
		}
	}
	_, safe := v.(markup)
	s, ok := text(v)
	if !ok {
		wrongType(v, "a string")
	}
	lines := ev.lines(s+"\n", false).items
	ev.text(2 * len(s))
	var b strings.Builder
	for i, item := range lines {
		line := item.(string)
		if i > 0 {
			b.WriteByte('\n')
		}
		if i > 0 && (line != "" || a[2] != nil && truth(a[2])) || i == 0 && a[1] != nil && truth(a[1]) {
			ev.text(2 * len(indention))
			b.WriteString(indention)
		}
		b.WriteString(line)
	}
	ev.text(b.Len())
	if safe {
		return markup(b.String())
	}
	return b.String()
}

func itemsFilter(ev *evaluator, v value, c *call) value {
	c.bind("items", 0)
	return ev.generate("do_items", func() func() (value, bool) {
		switch v := v.(type) {
		case *undefined:
			return func() (value, bool) { return nil, false }
		case *dict:
			return ev.iter(&view{v, "items"})
		}
		wrongType(v, "a dictionary")
		return nil
	})
}

func joinFilter(ev *evaluator, v value, c *call) value {
	a := c.bind("join", 0, "d", "attribute")
	sep := ""
	if a[0] != nil {
		sep = ev.str(a[0])
	}
	if a[1] != nil && a[1] != none {
		get := ev.attributeGetter(a[1], nil)
		next := ev.iter(v)
		v = &generator{"map", func() (value, bool) {
			item, ok := next()
			if !ok {
				return nil, false
			}
			return get(item), true
		}}
	}
	return ev.join(sep, v, true)
}

func replaceFilter(ev *evaluator, v value, c *call) value {
	a := c.bind("replace", 2, "old", "new", "count")
	count := int64(-1)
	if a[2] != nil && a[2] != none {
		count = wantInt(a[2])
	}
	return ev.replace(ev.str(v), ev.str(a[0]), ev.str(a[1]), count)
}

func roundFilter(ev *evaluator, v value, c *call) value {
	a := c.bind("round", 0, "precision", "method")
	method := "common"
	if a[1] != nil {
		method, _ = text(a[1])
	}
	precision := value(int64(0))
	if a[0] != nil {
		precision = a[0]
	}
	needDefined(v)
	switch method {
	case "common":
		if precision == none {
			if f, ok := v.(float64); ok {
				return truncate(math.RoundToEven(f))
			}
			return ev.roundNumber(v, 0)
		}
		return ev.roundNumber(v, wantInt(precision))
	case "ceil", "floor":
		scale := ev.binary("**", int64(10), precision)
		x := ev.binary("*", v, scale)
		if f, ok := x.(float64); ok {
			if method == "ceil" {
				x = truncate(math.Ceil(f))
			} else {
				x = truncate(math.Floor(f))
			}
		}
		return ev.binary("/", x, scale)
	}
	fail("round knows common, ceil and floor")
	return nil
}

func sumFilter(ev *evaluator, v value, c *call) value {
	a := c.bind("sum", 0, "attribute", "start")
	total := value(int64(0))
	if a[1] != nil {
		total = a[1]
	}
	if _, ok := text(total); ok {
		fail("sum adds no strings: use join")
	}
	get := ev.attributeGetter(a[0], nil)
	next := ev.iter(v)
	for item, ok := next(); ok; item, ok = next() {
		total = ev.binary("+", total, get(item))
	}
	return total
}

func trimFilter(ev *evaluator, v value, c *call) value {
	a := c.bind("trim", 0, "chars")
	if a[0] == nil {
		a[0] = none
	}
	return ev.onText(v, "strip", &call{pos: a})
}
