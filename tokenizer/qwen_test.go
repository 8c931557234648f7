package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// words are the pieces that a splitter cuts text into.
func words(t testing.TB, s splitter, text string) (list []string) {
	t.Helper()
	if err := s.split(text, func(piece string) error { list = append(list, piece); return nil }); err != nil {
		t.Fatal(err)
	}
	return list
}

// byDefinition is the expression on a backtracking engine.
func byDefinition(t testing.TB, expression string) splitter {
	t.Helper()
	s, err := newRegexpSplitter(expression, true)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What cuts words by hand does as its expression says, on texts of all that the
// expression tells apart, and on the corpus.
func TestQwenWords(t *testing.T) {
	// Letters, marks of each kind (nonspacing, spacing, enclosing), numbers, spaces,
	// newlines, contractions, and what is none of them.
	parts := []string{"a", "Z", "é", "ſ", "ß", "न", "好", "\u0301", "\u0302", "\u093f", "\u0903", "\u20dd", "\ufe0f", "\u094d", "1", "٣", "Ⅷ", "½", " ", " ", "\t", "\u00a0", "\u3000", "\n", "\r", "\r\n",
		"'", "'s", "'T", "'re", "'Ll", "'ſ", "!", ".", "-", "€", "😀", "\u200d", "\x00", "\ufffd", "the", "  "}
	r := rand.New(rand.NewPCG(35, 1))
	n := 20000
	if testing.Short() {
		n = 3000
	}
	texts := make([]string, n)
	for i := range texts {
		var b strings.Builder
		for range 1 + r.IntN(12) {
			b.WriteString(parts[r.IntN(len(parts))])
		}
		texts[i] = b.String()
	}
	for _, c := range readCorpus(t) {
		for i, text := range c.Texts {
			if i%20 == 0 && len(text) < 2000 {
				texts = append(texts, text)
			}
		}
	}
	for _, form := range []struct {
		expression string
		marks      bool
	}{{qwenPattern, false}, {qwen35Pattern, true}} {
		want, got := byDefinition(t, form.expression), qwenSplitter{form.marks}
		for _, text := range texts {
			if a, b := words(t, got, text), words(t, want, text); !slices.Equal(a, b) {
				t.Fatalf("marks %v: %+q is cut into\n %+q, by the expression into\n %+q", form.marks, text, a, b)
			}
		}
	}
	if got := words(t, qwenSplitter{marks: true}, "cafe\u0301s मस्ते"); len(got) != 2 || got[0] != "cafe\u0301s" {
		t.Errorf("marks are cut off: %+q", got)
	}
	if got := words(t, qwenSplitter{}, "cafe\u0301s"); len(got) == 1 {
		t.Errorf("marks are no letters of Qwen3's expression: %+q", got)
	}
}

// FuzzQwenWords compares the words with the expressions' on any text.
func FuzzQwenWords(f *testing.F) {
	for _, text := range []string{"a\u0301b c", "\u0301", " \u0301\u0301!", "'s \r\n\u0903x 12", "\xff\u0301"} {
		f.Add(text)
	}
	plain, marks := byDefinition(f, qwenPattern), byDefinition(f, qwen35Pattern)
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			return
		}
		text = strings.ToValidUTF8(text, "\ufffd") // an engine of runes has one for each byte
		if a, b := words(t, qwenSplitter{}, text), words(t, plain, text); !slices.Equal(a, b) {
			t.Errorf("%+q: %+q, by the expression %+q", text, a, b)
		}
		if a, b := words(t, qwenSplitter{marks: true}, text), words(t, marks, text); !slices.Equal(a, b) {
			t.Errorf("marks, %+q: %+q, by the expression %+q", text, a, b)
		}
	})
}
