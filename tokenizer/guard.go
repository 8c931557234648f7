package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// guard is put into the text of special tokens in messages, so that the
// rendered prompt tells them from those of the template. It is a
// noncharacter: Unicode reserves it for such use inside of programs.
const guard = "\ufdd0"

// guardSpecial puts a guard after the first character of each special token
// in s. A guard that s brings along becomes U+FFFD.
func (t *Tokenizer) guardSpecial(s string) string {
	s = strings.ReplaceAll(s, guard, string(utf8.RuneError))
	var b strings.Builder
	done := 0
	raw, norm := -1, -1
	next := func(i int) int { // each set looks at a byte once
		if raw < i {
			raw = t.rawAdded.next(s, i)
		}
		if norm < i {
			norm = t.normAdded.next(s, i)
		}
		return min(raw, norm)
	}
	for i := next(0); i < len(s); i = next(i + 1) {
		token, n := t.rawAdded.match(s, i)
		if n == 0 {
			token, n = t.normAdded.match(s, i)
		}
		if n == 0 || !t.special[token.id] {
			continue
		}
		_, first := utf8.DecodeRuneInString(s[i:])
		b.WriteString(s[done : i+first])
		b.WriteString(guard)
		done = i + first
	}
	if done == 0 {
		return s
	}
	b.WriteString(s[done:])
	return b.String()
}
