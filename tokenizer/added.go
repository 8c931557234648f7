package tokenizer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// addedToken is what an added token of the file does when its text is met.
type addedToken struct {
	id         int32
	singleWord bool // only where no word character stands beside it
	lstrip     bool // takes the white space before it
	rstrip     bool // takes the white space after it
}

// addedSet finds added tokens in text: the leftmost, and of those that start
// at one place the longest.
type addedSet struct {
	byText map[string]addedToken
	// lengths are the lengths in bytes of the tokens that start with a byte,
	// longest first: a lookup for each, which keeps files with thousands of
	// <extra_id_N> fast.
	lengths [256][]int
	// firsts are the bytes that they begin with, mostly one.
	firsts []byte
}

func (a *addedSet) add(text string, token addedToken) {
	if text == "" {
		return
	}
	if a.byText == nil {
		a.byText = make(map[string]addedToken)
	}
	a.byText[text] = token
	l := &a.lengths[text[0]]
	if len(*l) == 0 {
		a.firsts = append(a.firsts, text[0])
	}
	if !slices.Contains(*l, len(text)) {
		*l = append(*l, len(text))
		slices.SortFunc(*l, func(x, y int) int { return y - x })
	}
}

// match returns the longest token that starts at text[i].
func (a *addedSet) match(text string, i int) (addedToken, int) {
	for _, n := range a.lengths[text[i]] {
		if i+n <= len(text) {
			if token, ok := a.byText[text[i:i+n]]; ok {
				return token, n
			}
		}
	}
	return addedToken{}, 0
}

// next is where in text, from i on, a token may start: the end of text where none does.
func (a *addedSet) next(text string, i int) int {
	switch len(a.firsts) {
	case 0:
		return len(text)
	case 1:
		if n := strings.IndexByte(text[i:], a.firsts[0]); n >= 0 {
			return i + n
		}
		return len(text)
	}
	for i < len(text) && a.lengths[text[i]] == nil {
		i++
	}
	return i
}

// split calls onText with each stretch of text between added tokens, and
// onToken with each of those, in order. It follows the reference engine in
// the odd cases too: a match that single_word refuses is passed over whole,
// and the search goes on where a match ended, not where its white space did.
func (a *addedSet) split(text string, onText func(string) error, onToken func(int32) error) error {
	done := 0
	for i := a.next(text, 0); i < len(text); i = a.next(text, i) {
		token, n := a.match(text, i)
		if n == 0 {
			i++
			continue
		}
		start, end := i, i+n
		i = end
		if token.singleWord && (endsWithWord(text[:start]) || startsWithWord(text[end:])) {
			continue
		}
		if token.lstrip {
			for start > done {
				r, size := utf8.DecodeLastRuneInString(text[done:start])
				if !unicode.IsSpace(r) {
					break
				}
				start -= size
			}
		}
		if token.rstrip {
			for end < len(text) {
				r, size := utf8.DecodeRuneInString(text[end:])
				if !unicode.IsSpace(r) {
					break
				}
				end += size
			}
		}
		if done < start {
			if err := onText(text[done:start]); err != nil {
				return err
			}
		}
		if err := onToken(token.id); err != nil {
			return err
		}
		done = end
	}
	if done < len(text) {
		return onText(text[done:])
	}
	return nil
}

func startsWithWord(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return n > 0 && isWord(r)
}

func endsWithWord(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return n > 0 && isWord(r)
}

// isWord is \w of Unicode's technical standard 18: alphabetic, mark, decimal
// digit, connector punctuation, join control.
func isWord(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control)
}
