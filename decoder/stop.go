package decoder

import "strings"

// stopMatcher passes text on until one of the stop strings is complete. It
// holds back an end that may begin one. Of several, the one that is complete
// first counts (the longest of those that end together), so the visible text
// does not depend on how the text was cut into pieces.
type stopMatcher struct {
	stops []string
	held  string
}

// push takes a piece and returns what is certain to be visible, and whether a
// stop string is complete; after that nothing more is visible.
func (m *stopMatcher) push(piece string) (visible string, stopped bool) {
	if len(m.stops) == 0 {
		return piece, false
	}
	text := m.held + piece
	from, end := -1, len(text)+1
	for _, s := range m.stops {
		if i := strings.Index(text, s); i >= 0 && (i+len(s) < end || i+len(s) == end && i < from) {
			from, end = i, i+len(s)
		}
	}
	if from >= 0 {
		m.held = ""
		return text[:from], true
	}
	keep := 0
	for _, s := range m.stops {
		for n := min(len(s)-1, len(text)); n > keep; n-- {
			if strings.HasSuffix(text, s[:n]) {
				keep = n
			}
		}
	}
	cut := len(text) - keep
	m.held = strings.Clone(text[cut:])
	return text[:cut], false
}

// flush returns what is held back: the text has ended without a stop string.
func (m *stopMatcher) flush() string {
	held := m.held
	m.held = ""
	return held
}
