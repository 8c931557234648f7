package answer

// stop finds one string in a text that comes byte by byte, in constant time a
// byte on average (Knuth, Morris, Pratt: Fast Pattern Matching in Strings, 1977).
type stop struct {
	text string
	// back[k] is the length of the longest proper prefix of text[:k] that is
	// also its suffix.
	back    []int
	matched int // bytes of text that end the text so far; below len(text)
}

func newStop(text string) stop {
	back := make([]int, len(text)+1)
	for k, n := 1, 0; k < len(text); k++ {
		for n > 0 && text[k] != text[n] {
			n = back[n]
		}
		if text[k] == text[n] {
			n++
		}
		back[k+1] = n
	}
	return stop{text: text, back: back}
}

// step takes the next byte and reports whether text ends there.
func (s *stop) step(b byte) bool {
	for s.matched > 0 && s.text[s.matched] != b {
		s.matched = s.back[s.matched]
	}
	if s.text[s.matched] == b {
		s.matched++
	}
	if s.matched < len(s.text) {
		return false
	}
	s.matched = s.back[s.matched]
	return true
}
