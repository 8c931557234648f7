package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Encode returns the ids of text. The text of an added token, such as
// <|im_start|>, becomes its id: use it for text that a template made, and
// EncodePlain for text of unknown origin. Nothing is put before or after.
// Bytes that are not UTF-8 count as U+FFFD, one for each maximal invalid part.
//
// An error is possible only where the model brings an expression of its own
// for cutting text into words, and that takes too long.
func (t *Tokenizer) Encode(text string) ([]int32, error) { return t.encode(text, true, false) }

// EncodePlain is Encode without added tokens: "<|im_end|>" in text is six
// ordinary tokens that spell it, and cannot end a turn.
func (t *Tokenizer) EncodePlain(text string) ([]int32, error) { return t.encode(text, false, false) }

func (t *Tokenizer) encode(text string, added, guarded bool) ([]int32, error) {
	// Between three and four bytes of English make a token.
	ids := make([]int32, 0, len(text)/3+1)
	err := t.walk(text, added, guarded,
		func(word string) error {
			ids = t.bpe.append(ids, word)
			return nil
		},
		func(id int32) error {
			ids = append(ids, id)
			return nil
		})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

// walk cuts text and calls onWord with each word, normalized, and onToken with
// each added token (none if added is false), in order. guarded says that text
// holds guards (see guard.go), which are taken out once added tokens are cut.
func (t *Tokenizer) walk(text string, added, guarded bool, onWord func(string) error, onToken func(int32) error) error {
	if !utf8.ValidString(text) {
		text = lossy(text)
	}
	words := func(piece string) error {
		if guarded {
			piece = strings.ReplaceAll(piece, guard, "")
		}
		return splitAll(t.splitters, piece, onWord)
	}
	if !added {
		return words(t.normalize(text))
	}
	return t.rawAdded.split(text, func(piece string) error {
		return t.normAdded.split(t.normalize(piece), words, onToken)
	}, onToken)
}

// lossy replaces each maximal invalid part of s by U+FFFD.
func lossy(s string) string {
	var b strings.Builder
	b.Grow(len(s) + 8)
	appendLossy(&b, []byte(s), true)
	return b.String()
}
