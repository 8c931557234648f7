package answer

import "strings"

// content gives out the text that is neither reasoning nor a call: up to the
// first stop string, and without the white space that only stands around calls.
type content struct {
	stops []stop
	found string // the stop string that was found

	held      []byte // what may begin a stop string
	blank     []byte // white space that nothing has followed yet
	holdSpace bool   // calls may come, so blank is held
	touched   bool   // a call stands before, in or after blank
	any       bool   // some content was given out
}

// stepContent gives out text and looks for what begins a call, and for the
// closing tag of one that is complete.
func (p *Parser) stepContent(b byte) bool {
	if len(p.marker) == 0 && b != '<' || p.form == FormNone || p.either && p.wrote {
		if p.adjacent && b == '{' && p.form == FormJSON && !(p.either && p.wrote) { // another call in the same tag
			p.content.cut(p)
			p.state = inJSON
			return false
		}
		p.adjacent = p.adjacent && isSpace(b)
		p.wrote = p.wrote || !isSpace(b)
		p.content.add(p, b)
		return true
	}
	// No marker has a '<' but its first byte, so a text that fails to be one
	// can only begin another at the byte where it fails.
	p.marker = append(p.marker, b)
	marker := string(p.marker)
	switch {
	case p.closing && marker == callClose:
		p.content.cut(p)
		p.closing, p.adjacent = false, false
		p.marker = p.marker[:0]
		return true
	case p.closing && strings.HasPrefix(callClose, marker):
		return true
	}
	partial := false
	for _, o := range p.openers {
		if marker == o {
			p.content.cut(p)
			p.raw = append(p.raw[:0], marker...)
			p.marker = p.marker[:0]
			p.closing, p.adjacent = false, false
			p.opened(marker)
			return true
		}
		partial = partial || strings.HasPrefix(o, marker)
	}
	if partial {
		return true
	}
	p.marker = p.marker[:len(p.marker)-1]
	p.endMarker()
	return false
}

// endMarker: what was held as a marker is none.
func (p *Parser) endMarker() {
	marker := string(p.marker)
	p.marker = p.marker[:0]
	if marker != "" {
		p.adjacent, p.wrote = false, true
	}
	for i := range len(marker) {
		if p.Stopped() {
			return
		}
		p.content.add(p, marker[i])
	}
}

// opened goes into a call whose opening text was just read.
func (p *Parser) opened(marker string) {
	if marker == callOpen {
		p.state = afterOpen
		return
	}
	name := strings.TrimSuffix(strings.TrimPrefix(marker, functionOpen), ">")
	p.beginFunction(name)
}

// add takes a byte of content and gives out what cannot belong to a stop string.
func (c *content) add(p *Parser, b byte) {
	c.held = append(c.held, b)
	keep := 0
	for i := range c.stops {
		s := &c.stops[i]
		if s.step(b) && len(s.text) > len(c.found) {
			c.found = s.text
		}
		keep = max(keep, s.matched)
	}
	if c.found != "" {
		c.release(p, len(c.held)-len(c.found))
		c.held = nil
		return
	}
	c.release(p, len(c.held)-keep)
}

// cut ends a stretch of content, so that no stop string goes across it.
func (c *content) cut(p *Parser) {
	for i := range c.stops {
		c.stops[i].matched = 0
	}
	c.release(p, len(c.held))
}

// release gives out the first n held bytes. White space waits for what follows
// it: between texts it is content, but around calls it is layout.
func (c *content) release(p *Parser, n int) {
	for _, b := range c.held[:n] {
		if c.holdSpace && isSpace(b) {
			c.blank = append(c.blank, b)
			continue
		}
		if !c.touched || c.any {
			p.emit(Content, string(c.blank))
		}
		c.blank, c.touched, c.any = c.blank[:0], false, true
		p.emit(Content, string([]byte{b}))
	}
	if n == len(c.held) {
		n, c.held = 0, c.held[:0]
	}
	c.held = c.held[n:]
}

// finish gives out what is left at the end.
func (c *content) finish(p *Parser) {
	c.cut(p)
	if !c.touched && len(c.blank) > 0 {
		p.emit(Content, string(c.blank))
	}
	c.blank = nil
}
