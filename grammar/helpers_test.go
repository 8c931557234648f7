package grammar

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// large is the vocabulary of Qwen3, 151,643 tokens of text, from the
// tokenizer's test data, with one more id that ends a text.
var large = sync.OnceValues(func() (*Vocabulary, error) {
	f, err := os.Open("../tokenizer/testdata/qwen3/tokenizer.json.gz")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(z)
	if err != nil {
		return nil, err
	}
	var file struct {
		Model struct{ Vocab map[string]int }
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, err
	}
	tokens := make([][]byte, len(file.Model.Vocab)+1)
	for s, id := range file.Model.Vocab {
		tokens[id] = byteLevel(s)
	}
	return NewVocabulary(tokens, VocabularyOptions{End: []int32{int32(len(tokens) - 1)}})
})

func largeVocabulary(t testing.TB) *Vocabulary {
	t.Helper()
	v, err := large()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// byteLevel reads GPT-2's alphabet: a printable character of Latin-1 stands for
// itself, the 68 other bytes are moved to U+0100 and up, in order.
func byteLevel(s string) (out []byte) {
	for _, r := range s {
		if r < 0x100 {
			out = append(out, byte(r))
			continue
		}
		moved := rune(0x100)
		for b := range 256 {
			if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
				continue
			}
			if moved == r {
				out = append(out, byte(b))
			}
			moved++
		}
	}
	return out
}

// smallVocabulary is all single bytes, some pieces of words, of JSON and of
// characters, two ids for one piece, one special, one without bytes, and an end.
func smallVocabulary(t testing.TB) *Vocabulary {
	t.Helper()
	var tokens [][]byte
	for b := range 256 {
		tokens = append(tokens, []byte{byte(b)})
	}
	for _, s := range []string{
		"", "the", "the", " the", "ab", "abc", "abcabc", " a", "a b", "aB", "Ab1", "12", "0.", "-1", "1e5", `":`, `",`, `"}`, `"]`, `{"`, `{"a`, `"a":`, `":"`,
		`":{"`, `"},{"`, `\"`, `\\`, `\u`, `u00`, `\n`, "\n", "\n\n", "\n  ", "  ", "   ", ",\n", "[]", "{}", "[[", "]]", "}}", "true", "false", "null", "tru", "é", "éa",
		"日本", "日", "\xe6\x97", "\xa5", "\xa5本", "😀", "\xf0\x9f", "a\xe6", "();", "))", "((", "x", "xx", "xxx", " x", "1,2", "1]", `a"`, `b",`, `é"`, `日"}`,
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", "<end>", "<special>",
	} {
		tokens = append(tokens, []byte(s))
	}
	n := int32(len(tokens))
	v, err := NewVocabulary(tokens, VocabularyOptions{End: []int32{n - 2}, Special: []int32{n - 1}})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// accepts reports whether a grammar takes a whole text.
func accepts(c *Constraint, text string) bool {
	m := c.Start()
	return m.AdvanceBytes([]byte(text)) && m.CanEnd()
}

// generate follows random bytes that are allowed, to an end; the chance to end
// where that is allowed grows with the length. ok is false if it got too long.
func generate(c *Constraint, r *rand.Rand, longest int) (text string, ok bool) {
	m := c.Start()
	var out []byte
	for len(out) < longest {
		if m.CanEnd() && (m.Done() || r.IntN(8) == 0) {
			return string(out), true
		}
		next := nextBytes(m)
		if len(next) == 0 {
			return string(out), m.CanEnd()
		}
		b := next[r.IntN(len(next))]
		if len(out) > longest/4 { // towards the end: what closes things
			for _, want := range []byte(`"]}`) {
				for _, n := range next {
					if n == want && r.IntN(2) == 0 {
						b = want
					}
				}
			}
		}
		m.AdvanceBytes([]byte{b})
		out = append(out, b)
	}
	return "", false
}

// nextBytes lists the bytes that may follow.
func nextBytes(m Matcher) (next []byte) {
	for b := range 256 {
		if t := m.Clone(); t.AdvanceBytes([]byte{byte(b)}) {
			next = append(next, byte(b))
		}
	}
	return next
}

// mutate changes a text a little.
func mutate(s string, r *rand.Rand, alphabet string) string {
	b := []byte(s)
	for range 1 + r.IntN(3) {
		i := r.IntN(len(b) + 1)
		c := alphabet[r.IntN(len(alphabet))]
		switch r.IntN(4) {
		case 0:
			b = append(b[:i:i], append([]byte{c}, b[i:]...)...)
		case 1:
			if i < len(b) {
				b[i] = c
			}
		case 2:
			if i < len(b) {
				b = append(b[:i:i], b[i+1:]...)
			}
		case 3:
			j := min(len(b), i+r.IntN(4))
			b = append(b[:j:j], b[i:]...)
		}
	}
	return string(b)
}

// bruteMask asks for each id by itself.
func bruteMask(m Matcher, v *Vocabulary) []uint64 {
	out := make([]uint64, v.Words())
	for id := range v.Size() {
		if m.Allowed(int32(id)) {
			out[id/64] |= 1 << (id % 64)
		}
	}
	return out
}

// sameMask compares a mask with what each id by itself gives.
func sameMask(t *testing.T, m Matcher, v *Vocabulary, after string) {
	t.Helper()
	got, want := make([]uint64, v.Words()), bruteMask(m, v)
	for i := range got {
		got[i] = ^uint64(0) // a mask is written whole
	}
	_ = m.Mask(got)
	for id := range v.Size() {
		g, w := got[id/64]>>(id%64)&1, want[id/64]>>(id%64)&1
		if g != w {
			t.Fatalf("after %q: the mask has %d for token %d %q, alone it has %d", after, g, id, v.tokens[id], w)
		}
	}
}

func validUTF8(s string) bool { return utf8.ValidString(s) }

// repeatsKey reports whether an object of a text has a member twice: the
// oracle's map keeps one of them.
func repeatsKey(text string) bool {
	d := json.NewDecoder(strings.NewReader(text))
	var read func() bool
	read = func() bool {
		t, _ := d.Token()
		seen := make(map[string]bool)
		for t == json.Delim('{') && d.More() {
			k, _ := d.Token()
			if seen[k.(string)] || read() {
				return true
			}
			seen[k.(string)] = true
		}
		for t == json.Delim('[') && d.More() {
			if read() {
				return true
			}
		}
		if _, nested := t.(json.Delim); nested {
			_, _ = d.Token()
		}
		return false
	}
	return read()
}

// unhurried has the default limits but for the time, which a busy machine may exceed.
var unhurried = Options{Limits: Limits{Time: time.Minute}}
