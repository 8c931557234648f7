package answer

import "strings"

// coder reads a FormCoder call after its opening tag.
type coder struct {
	literal []byte // the beginning of a tag
	name    []byte // of the function or the parameter, as it comes
	schema  *schema
	given   []string // the names of the parameters so far

	pending []byte // text of a value that may be the tag that ends it
	value   value
}

// stepCoder takes a byte of a call, outside of its opening tag.
func (p *Parser) stepCoder(b byte) bool {
	switch p.state {
	case afterOpen:
		return p.stepTag(b, functionOpen)
	case inBody:
		if len(p.coder.literal) == 0 && isSpace(b) {
			p.raw = append(p.raw, b)
			return true
		}
		return p.stepTag(b, parameterOpen, functionClose, callClose)
	case inName, inKey:
		return p.stepName(b)
	default:
		p.raw = append(p.raw, b)
		if len(p.coder.pending) == 0 && b != '<' {
			p.emit(Arguments, p.coder.value.add(b))
			return true
		}
		p.coder.pending = append(p.coder.pending, b)
		p.settleValue(false)
		return true
	}
}

// stepTag takes a byte of one of tags.
func (p *Parser) stepTag(b byte, tags ...string) bool {
	c := &p.coder
	c.literal = append(c.literal, b)
	for _, tag := range tags {
		if !strings.HasPrefix(tag, string(c.literal)) {
			continue
		}
		p.raw = append(p.raw, b)
		if len(c.literal) < len(tag) {
			return true
		}
		c.literal = c.literal[:0]
		switch tag {
		case functionOpen:
			p.state = inName
		case parameterOpen:
			p.state = inKey
		case functionClose:
			p.endFunction()
		case callClose: // </function> is missing
			p.endFunction()
			p.closing, p.adjacent = false, false
		}
		return true
	}
	p.broken()
	return false
}

// stepName takes a byte of a function's or a parameter's name.
func (p *Parser) stepName(b byte) bool {
	c := &p.coder
	name := string(c.name)
	switch {
	case b != '>':
		if !isName(name + string([]byte{b})) {
			p.broken()
			return false
		}
		c.name = append(c.name, b)
	case name == "":
		p.broken()
		return false
	default:
		c.name = c.name[:0]
	}
	p.raw = append(p.raw, b)
	if b == '>' && p.state == inName {
		p.beginFunction(name)
	} else if b == '>' {
		p.beginValue(name)
	}
	return true
}

// beginFunction begins the call of a function whose opening tag was read.
func (p *Parser) beginFunction(name string) {
	p.state = inBody
	p.call.name = name
	for _, t := range p.tools {
		if t.name == name {
			p.coder.schema = t.parameters
			break
		}
	}
	p.beginCall()
	p.emit(Arguments, "{")
}

// endFunction ends a call that is complete.
func (p *Parser) endFunction() {
	p.emit(Arguments, "}")
	p.endCall()
}

func (p *Parser) beginValue(key string) {
	c := &p.coder
	p.state = inValue
	if len(c.given) > 0 {
		p.emit(Arguments, ",")
	}
	c.given = append(c.given, key)
	p.emit(Arguments, string(appendString(nil, key))+":")
	c.value = newValue(c.schema.property(key))
}

// endValue is the end of the text inside a value.
func (p *Parser) endValue() {
	p.settleValue(true)
	if p.state == inValue {
		p.emit(Arguments, p.coder.value.cut())
	}
}

// settleValue gives out what is certain of the pending text: a byte of the
// value, or its end.
func (p *Parser) settleValue(atEnd bool) {
	c := &p.coder
	for len(c.pending) > 0 {
		if c.pending[0] == '<' {
			verdict, n := c.boundary(string(c.pending), atEnd)
			if verdict == undecided {
				return
			}
			if verdict == isBoundary {
				p.emit(Arguments, c.value.end())
				// What follows the tag belongs to the body; it is in raw already.
				rest := string(c.pending[n:])
				c.pending = c.pending[:0]
				p.raw = p.raw[:len(p.raw)-len(rest)]
				p.state = inBody
				p.feedString(rest)
				return
			}
		}
		p.emit(Arguments, c.value.add(c.pending[0]))
		c.pending = c.pending[1:]
	}
	c.pending = nil
}

// verdict says whether a text is what it could be.
type verdict uint8

const (
	no verdict = iota
	undecided
	isBoundary
)

// maxBlank bounds the white space between the tags that end a value.
const maxBlank = 64

// boundary reports whether s, which begins with '<', ends a value, and how many
// bytes of it belong to the value's own closing tag. A value may hold any tag as
// text, so a closing tag counts only where another of the call's tags follows
// it. Where </parameter> was left out, the next parameter of the tool on a line
// of its own ends the value, and so does the end of the whole call.
func (c *coder) boundary(s string, atEnd bool) (verdict, int) {
	verdict := no
	for _, end := range [...]struct {
		tag    string
		length int
		next   []string
	}{
		{parameterClose, len(parameterClose), []string{parameterOpen, functionClose, callClose}},
		{functionClose, 0, []string{callClose}},
	} {
		switch v := follows(s, end.tag, end.next, atEnd); v {
		case isBoundary:
			return v, end.length
		case undecided:
			verdict = v
		}
	}
	if c.value.atLine() {
		switch v := c.isNextParameter(s); v {
		case isBoundary:
			return v, 0
		case undecided:
			verdict = v
		}
	}
	if atEnd {
		verdict = no
	}
	return verdict, 0
}

// follows reports whether s begins with tag, white space, and one of next. At
// the text's end the beginning of these is enough after the whole tag.
func follows(s, tag string, next []string, atEnd bool) verdict {
	rest, ok := strings.CutPrefix(s, tag)
	if !ok {
		if strings.HasPrefix(tag, s) {
			return undecided
		}
		return no
	}
	after := strings.TrimLeft(rest, space)
	if len(rest)-len(after) > maxBlank {
		return no
	}
	for _, n := range next {
		if strings.HasPrefix(after, n) || atEnd && strings.HasPrefix(n, after) {
			return isBoundary
		}
		if strings.HasPrefix(n, after) {
			return undecided
		}
	}
	return no
}

// isNextParameter reports whether s begins with the tag of a parameter that the
// tool has and that was not given yet.
func (c *coder) isNextParameter(s string) verdict {
	verdict := no
	for _, key := range c.schema.keys() {
		tag := parameterOpen + key + ">"
		switch {
		case !isName(key) || c.has(key):
		case strings.HasPrefix(s, tag):
			return isBoundary
		case strings.HasPrefix(tag, s):
			verdict = undecided
		}
	}
	return verdict
}

func (c *coder) has(key string) bool {
	for _, k := range c.given {
		if k == key {
			return true
		}
	}
	return false
}
