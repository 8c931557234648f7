package grammar

// Matcher is where one sequence stands in a grammar. It is small: to try a
// window of drafts, keep a Clone of it at each row, and go on from the one that
// was accepted. Each is used by one goroutine at a time.
type Matcher struct {
	c     *Constraint
	s     *state
	ended bool
}

// Clone returns a matcher that stands at the same place. Both go on alone.
func (m *Matcher) Clone() Matcher { return *m }

// enter locks the constraint, and makes the state one that its engine knows.
func (m *Matcher) enter() *engine {
	c := m.c
	c.mu.Lock()
	if c.e.full() {
		c.e.flush()
		c.cache.clear()
	}
	m.s = c.e.adopt(m.s)
	return c.e
}

func (m *Matcher) exit() { m.c.mu.Unlock() }

// Mask writes to dst the ids that may come next, bit id%64 of word id/64, and
// no others: dst has at least Words words of the vocabulary. Ids that end the
// text are among them where it may end. The error is ErrStuck if no id is
// allowed, ErrEnded after a token that ends the text.
func (m *Matcher) Mask(dst []uint64) error {
	if m.ended {
		clear(dst)
		return ErrEnded
	}
	m.enter()
	defer m.exit()
	return m.c.mask(m.s, dst)
}

// Allowed reports whether a token may come next. It is much cheaper than a mask.
func (m *Matcher) Allowed(token int32) bool {
	t := m.Clone()
	return t.Advance(token)
}

// Advance takes a token. It reports whether the token was allowed; where it was
// not the matcher stays where it is.
func (m *Matcher) Advance(token int32) bool {
	v := m.c.v
	if m.ended || token < 0 || int(token) >= len(v.tokens) {
		return false
	}
	if v.isEnd[token] {
		m.ended = m.s.complete
		return m.ended
	}
	return v.tokens[token] != "" && m.AdvanceBytes([]byte(v.tokens[token]))
}

// AdvanceBytes takes text, which may be cut anywhere, inside a character too.
// It reports whether the text was allowed; where it was not the matcher stays
// where it is.
func (m *Matcher) AdvanceBytes(text []byte) bool {
	if m.ended {
		return false
	}
	e := m.enter()
	defer m.exit()
	s := m.s
	for _, b := range text {
		if s = e.stepState(s, e.g.class[b]); s == noState {
			return false
		}
	}
	m.s = s
	return true
}

// CanEnd reports whether the text may end here.
func (m *Matcher) CanEnd() bool { return m.s.complete }

// Done reports whether nothing but the end can follow: the text is complete and
// no byte may come, or a token has ended it.
func (m *Matcher) Done() bool { return m.ended || m.s.complete && len(m.s.groups) == 0 }

// mostForced bounds the work of Forced, and the text that it returns.
const mostForced = 512

// Forced returns the bytes that must come next: as far as there is one way on,
// and the text cannot end. They may end inside a character. How they are cut
// into tokens is the caller's affair.
func (m *Matcher) Forced() []byte {
	if m.ended {
		return nil
	}
	e := m.enter()
	defer m.exit()
	var forced []byte
	for s := m.s; !s.complete && len(forced) < mostForced; {
		var only *state
		var b byte
		for class, first := range e.g.first {
			to := e.stepState(s, uint8(class))
			if to == noState {
				continue
			}
			if only != nil || first != e.g.last(class) {
				return forced
			}
			only, b = to, first
		}
		if only == nil {
			break // the stack is at its deepest
		}
		forced = append(forced, b)
		s = only
	}
	return forced
}
