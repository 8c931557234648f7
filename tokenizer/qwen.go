package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// qwenPattern is the expression by which Qwen2, Qwen3 and WeDLM cut text into
// words. Go's regexp cannot compile it (it looks ahead), and a backtracking
// engine is some fifty times slower than [qwenWord].
const qwenPattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// class says which of the expression's character classes a character is in.
type class uint8

const (
	other  class = iota // none of the three below
	letter              // \p{L}
	number              // \p{N}
	space               // \s, Unicode White_Space
)

var asciiClass = func() (table [utf8.RuneSelf]class) {
	for r := range table {
		table[r] = runeClass(rune(r))
	}
	return table
}()

func runeClass(r rune) class {
	switch {
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return number
	case unicode.IsSpace(r):
		return space
	}
	return other
}

// classAt returns the class and the length in bytes of the character at s[i].
func classAt(s string, i int) (class, int) {
	if s[i] < utf8.RuneSelf {
		return asciiClass[s[i]], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return runeClass(r), n
}

// qwenWord returns the length in bytes of the match of qwenPattern at the
// start of s, which must not be empty. Every character is matched by some
// branch, so the words of a text join to the text.
func qwenWord(s string) int {
	if n := contraction(s); n > 0 {
		return n
	}
	first, n := classAt(s, 0)

	// [^\r\n\p{L}\p{N}]?\p{L}+
	if first == letter {
		return runOf(letter, s, n)
	}
	if first != number && s[0] != '\r' && s[0] != '\n' && n < len(s) {
		if second, m := classAt(s, n); second == letter {
			return runOf(letter, s, n+m)
		}
	}

	// \p{N}
	if first == number {
		return n
	}

	// ` ?[^\s\p{L}\p{N}]+[\r\n]*`
	if first == other {
		return newlines(s, runOf(other, s, n))
	}
	if s[0] == ' ' && len(s) > 1 {
		if second, m := classAt(s, 1); second == other {
			return newlines(s, runOf(other, s, 1+m))
		}
	}

	// \s*[\r\n]+ | \s+(?!\S) | \s+
	end, lastChar, afterNewline := 0, 0, 0
	for end < len(s) {
		c, m := classAt(s, end)
		if c != space {
			break
		}
		lastChar = end
		end += m
		if s[lastChar] == '\n' || s[lastChar] == '\r' {
			afterNewline = end
		}
	}
	switch {
	case afterNewline > 0:
		return afterNewline
	case end < len(s) && lastChar > 0:
		return lastChar // the last space is left to the word after it
	}
	return end
}

// runOf returns the end of the run of characters of class c from s[i] on.
func runOf(c class, s string, i int) int {
	for i < len(s) {
		d, n := classAt(s, i)
		if d != c {
			break
		}
		i += n
	}
	return i
}

// newlines returns the end of the run of \r and \n from s[i] on.
func newlines(s string, i int) int {
	for i < len(s) && (s[i] == '\r' || s[i] == '\n') {
		i++
	}
	return i
}

// contraction matches (?i:'s|'t|'re|'ve|'m|'ll|'d) at the start of s and
// returns the length, or 0. Folding case, the long s (U+017F) is an s too.
func contraction(s string) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	switch s[1] | 0x20 {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if len(s) > 2 && s[2]|0x20 == 'e' {
			return 3
		}
	case 'l':
		if len(s) > 2 && s[2]|0x20 == 'l' {
			return 3
		}
	}
	if len(s) > 2 && s[1:3] == "\u017f" {
		return 3
	}
	return 0
}
