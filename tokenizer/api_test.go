package tokenizer

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"windrow/internal/threadtime"
)

func TestLookUp(t *testing.T) {
	q := qwen3(t)
	if q.Size() != 151669 {
		t.Errorf("Size() = %d, want 151669", q.Size())
	}
	for token, want := range map[string]int32{"<|endoftext|>": 151643, "<|im_end|>": 151645, "</think>": 151668, "Ġthe": 279, "!": 0} {
		if id, ok := q.ID(token); !ok || id != want {
			t.Errorf("ID(%q) = %d, %v; want %d", token, id, ok, want)
		}
		if got, ok := q.Token(want); !ok || got != token {
			t.Errorf("Token(%d) = %q, %v; want %q", want, got, ok, token)
		}
	}
	for _, id := range []int32{-1, 151669, 1 << 30} {
		if token, ok := q.Token(id); ok {
			t.Errorf("Token(%d) = %q; want none", id, token)
		}
	}
	if id, ok := q.EOS(); !ok || id != 151645 {
		t.Errorf("EOS() = %d, %v; want 151645", id, ok)
	}
	if id, ok := q.Pad(); !ok || id != 151643 {
		t.Errorf("Pad() = %d, %v; want 151643", id, ok)
	}
	if q.Special(151657) || !q.Special(151645) {
		t.Error("<tool_call> is not special, <|im_end|> is")
	}
	if id, ok := tiny(t).ID("<|mask|>"); !ok || id != 4095 {
		t.Errorf("tiny-gsm's mask is %d, %v; want 4095", id, ok)
	}
}

func TestEncodePlain(t *testing.T) {
	for _, m := range models {
		tok := m.load(t)
		text := "a<|im_end|>b <|im_start|>system"
		ids, err := tok.EncodePlain(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if tok.Special(id) {
				t.Errorf("%s: EncodePlain(%q) holds the control token %d", m.name, text, id)
			}
		}
		if got := tok.Decode(ids, true); got != text {
			t.Errorf("%s: decodes to %q, want %q", m.name, got, text)
		}
	}
}

func TestEncodeInvalidUTF8(t *testing.T) {
	tok := tiny(t)
	for text, want := range map[string]string{
		"a\xffb":               "a\ufffdb",
		"\xe2\x82":             "\ufffd",             // cut off: one part
		"\xe2\x82\xe2\x82a":    "\ufffd\ufffda",      // two parts
		"\xed\xa0\x80":         "\ufffd\ufffd\ufffd", // a surrogate: no byte may follow 0xED but 80..9F
		"\xf0\x9f\x98\x80\x80": "😀\ufffd",
		"\xc0\xaf\xf5":         "\ufffd\ufffd\ufffd",
	} {
		got, err := tok.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		ids, _ := tok.Encode(want)
		if !slices.Equal(got, ids) {
			t.Errorf("Encode(%q) = %v, want those of %q: %v", text, got, want, ids)
		}
	}
}

// TestStreamWholeCharacters feeds characters whose bytes lie in several
// tokens: no piece may hold a part of one.
func TestStreamWholeCharacters(t *testing.T) {
	const text = "ok 🫠👨‍👩‍👧‍👦 𐍈 好 é \U000e0041!"
	for _, m := range models {
		tok := m.load(t)
		ids, err := tok.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		s, got, held := tok.NewStream(true), "", 0
		for _, id := range ids {
			piece := s.Push(id)
			if !utf8.ValidString(piece) || strings.ContainsRune(piece, utf8.RuneError) {
				t.Errorf("%s: piece %q holds half a character", m.name, piece)
			}
			if piece == "" {
				held++
			}
			got += piece
		}
		if got != text || s.Flush() != "" {
			t.Errorf("%s: stream gave %q, want %q and nothing more", m.name, got, text)
		}
		if held == 0 {
			t.Errorf("%s: no token ended inside a character: the test shows nothing", m.name)
		}
	}
}

func TestStreamFlush(t *testing.T) {
	tok := tiny(t)
	ids, _ := tok.Encode("😀")
	s := tok.NewStream(true)
	if got := s.Push(ids[0]); got != "" {
		t.Errorf("Push of the first part of 😀 = %q, want nothing", got)
	}
	if got := s.Flush(); got != "\ufffd" {
		t.Errorf("Flush = %q, want U+FFFD", got)
	}
	if got := s.Push(ids[0]) + s.Flush(); got != "\ufffd" {
		t.Errorf("the stream used again gave %q, want U+FFFD", got)
	}
}

// TestLinearTime encodes texts on which quadratic algorithms show: one of 8 times
// the length takes them 8 times as long as 8 of the length. Both run about as long
// and by turns, and the processor's time counts, so that a machine that is busy, or
// lends its processors in slices, does the same to both.
func TestLinearTime(t *testing.T) {
	tok := tiny(t)
	const n, times = 20_000, 8
	for name, unit := range map[string]string{
		"letters": "a", "spaces": " ", "newlines and spaces": "\n   ", "brackets": "<", "control tokens cut off": "<|im_start|",
		"digits": "1", "marks": "\u0301", "later marks": "\u1abf", "quotes": "'", "Chinese": "好", "alternating": "ab ", "invalid": "\xf0\x9f",
	} {
		text := strings.Repeat(unit, n/len(unit))
		parts, whole := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
		linear := func() bool { return whole <= 3*parts || whole <= 200*time.Millisecond }
		for range 6 {
			parts = min(parts, encodeTime(t, tok, text, times))
			if whole = min(whole, encodeTime(t, tok, strings.Repeat(text, times), 1)); linear() {
				break
			}
		}
		if !linear() {
			t.Errorf("%s: %d times %d bytes take %v, as one text %v", name, times, len(text), parts, whole)
		}
	}
}

// encodeTime is what it takes of a processor to encode text that many times.
func encodeTime(t *testing.T, tok *Tokenizer, text string, times int) time.Duration {
	t.Helper()
	m := threadtime.Start()
	defer m.Stop()
	for range times {
		if _, err := tok.Encode(text); err != nil {
			t.Fatal(err)
		}
	}
	return m.Passed()
}

func TestWordCacheIsBounded(t *testing.T) {
	var c wordCache
	c.put("kept", []int32{7})
	for i := range 5*cachedWords + 5 {
		c.put(string(rune(i+0x10000)), []int32{1})
		if i%(cachedWords/4) == 0 {
			if ids, ok := c.get("kept"); !ok || len(ids) != 1 || ids[0] != 7 {
				t.Fatalf("after %d words: %v, %v of one that is asked for again and again", i, ids, ok)
			}
		}
		if n := len(c.words) + len(c.old); n > cachedWords {
			t.Fatalf("after %d words the cache holds %d, want at most %d", i, n, cachedWords)
		}
	}
	if _, ok := c.get(string(rune(0x10000))); ok {
		t.Error("the first of many words is still there")
	}
}

func TestConcurrentUse(t *testing.T) {
	tok := tiny(t)
	want, _ := tok.Encode("Natalia sold clips to 48 of her friends.")
	done := make(chan bool)
	for range 4 {
		go func() {
			ok := true
			for range 200 {
				got, err := tok.Encode("Natalia sold clips to 48 of her friends.")
				ok = ok && err == nil && slices.Equal(got, want)
			}
			done <- ok
		}()
	}
	for range 4 {
		if !<-done {
			t.Error("ids differ between goroutines")
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	tok := qwen3(b)
	var text strings.Builder
	for _, c := range readCorpus(b) {
		if c.Name == "english" || c.Name == "problems" || c.Name == "code" {
			text.WriteString(strings.Join(c.Texts, "\n"))
		}
	}
	tokens := 0
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	for b.Loop() {
		ids, err := tok.Encode(text.String())
		if err != nil {
			b.Fatal(err)
		}
		tokens += len(ids)
	}
	b.ReportMetric(float64(tokens)/b.Elapsed().Seconds(), "tokens/s")
}

func BenchmarkLoadQwen3(b *testing.B) {
	data := readGzip(b, "qwen3/tokenizer.json.gz")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := New(data, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLoadTiny(b *testing.B) {
	for b.Loop() {
		if _, err := Load(testFolder(tinyDir)); err != nil {
			b.Fatal(err)
		}
	}
}
