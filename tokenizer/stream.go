package tokenizer

import "strings"

// Stream decodes ids one at a time. What Push and Flush return joins to what
// [Tokenizer.Decode] gives for the same ids; no piece ends inside a character.
type Stream struct {
	t           *Tokenizer
	skipSpecial bool
	pending     []byte // an incomplete character: at most 3 bytes between calls
}

// NewStream starts decoding a sequence of ids.
func (t *Tokenizer) NewStream(skipSpecial bool) *Stream {
	return &Stream{t: t, skipSpecial: skipSpecial}
}

// Push takes the next id and returns the text that is certain now, which is
// empty while a character is incomplete.
func (s *Stream) Push(id int32) string {
	s.pending = s.t.appendToken(s.pending, id, s.skipSpecial)
	return s.take(false)
}

// Flush ends the sequence: bytes of a character that never was completed come
// out as U+FFFD. The stream can be used again for another sequence.
func (s *Stream) Flush() string { return s.take(true) }

func (s *Stream) take(final bool) string {
	var b strings.Builder
	b.Grow(len(s.pending))
	n := appendLossy(&b, s.pending, final)
	s.pending = append(s.pending[:0], s.pending[n:]...)
	return b.String()
}
