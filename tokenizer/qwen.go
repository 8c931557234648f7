package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// qwenPattern is the expression by which Qwen2, Qwen3 and WeDLM cut text into
// words. Go's regexp cannot compile it (it looks ahead), and a backtracking
// engine is some fifty times slower than [qwenSplitter.word].
const qwenPattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// qwen35Pattern is the expression of Qwen3.5, by which combining marks (\p{M}) are
// among letters: of "é" in two characters neither stands alone.
const qwen35Pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// class says which of the expression's character classes a character is in.
type class uint8

const (
	other  class = iota // none of the three below
	letter              // \p{L}, and \p{M} where marks are letters
	number              // \p{N}
	space               // \s, Unicode White_Space
)

var asciiClass = func() (table [utf8.RuneSelf]class) {
	for r := range table {
		table[r] = qwenSplitter{}.runeClass(rune(r)) // no mark is among them
	}
	return table
}()

func (q qwenSplitter) runeClass(r rune) class {
	switch {
	case unicode.IsLetter(r), q.marks && unicode.IsMark(r):
		return letter
	case unicode.IsNumber(r):
		return number
	case unicode.IsSpace(r):
		return space
	}
	return other
}

// classAt returns the class and the length in bytes of the character at s[i].
func (q qwenSplitter) classAt(s string, i int) (class, int) {
	if s[i] < utf8.RuneSelf {
		return asciiClass[s[i]], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return q.runeClass(r), n
}

// word returns the length in bytes of the match of the expression at the start
// of s, which must not be empty. Every character is matched by some branch, so
// the words of a text join to the text. A mark that is a letter needs no branch
// of its own: the optional character before letters may be one, and is then the
// first of a run of them.
func (q qwenSplitter) word(s string) int {
	if n := contraction(s); n > 0 {
		return n
	}
	first, n := q.classAt(s, 0)

	// [^\r\n\p{L}\p{N}]?\p{L}+
	if first == letter {
		return q.runOf(letter, s, n)
	}
	if first != number && s[0] != '\r' && s[0] != '\n' && n < len(s) {
		if second, m := q.classAt(s, n); second == letter {
			return q.runOf(letter, s, n+m)
		}
	}

	// \p{N}
	if first == number {
		return n
	}

	// ` ?[^\s\p{L}\p{N}]+[\r\n]*`
	if first == other {
		return newlines(s, q.runOf(other, s, n))
	}
	if s[0] == ' ' && len(s) > 1 {
		if second, m := q.classAt(s, 1); second == other {
			return newlines(s, q.runOf(other, s, 1+m))
		}
	}

	// \s*[\r\n]+ | \s+(?!\S) | \s+
	end, lastChar, afterNewline := 0, 0, 0
	for end < len(s) {
		c, m := q.classAt(s, end)
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
func (q qwenSplitter) runOf(c class, s string, i int) int {
	for i < len(s) {
		if b := s[i]; b < utf8.RuneSelf { // as classAt has it, without a call a byte
			if asciiClass[b] != c {
				break
			}
			i++
			continue
		}
		d, n := q.classAt(s, i)
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
