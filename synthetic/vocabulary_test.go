package synthetic

import "testing"

// TestTokenizer: what is encoded can be decoded, each id is text of its own, and there
// are as many as were asked for.
func TestTokenizer(t *testing.T) {
	const size = 5000
	tok, err := Tokenizer(size)
	if err != nil {
		t.Fatal(err)
	}
	if tok.Size() != size {
		t.Errorf("%d ids", tok.Size())
	}
	const text = "Two rows, ä 你好\n\x00."
	ids, err := tok.Encode(text)
	if err != nil || tok.Decode(ids, false) != text {
		t.Errorf("%q became %v, %v", text, ids, err)
	}
	seen := map[string]bool{}
	for id := int32(256); id < size; id++ {
		s := tok.Decode([]int32{id}, false)
		if len(s) < 4 || s[0] != ' ' || seen[s] {
			t.Fatalf("%d is %q", id, s)
		}
		seen[s] = true
	}
	if _, err := Tokenizer(255); err == nil {
		t.Error("255 ids are too few")
	}
}
