package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	sugarme "github.com/sugarme/tokenizer"
)

// TestParity compares ids with the reference engine on the whole corpus: the
// core's and those of the sugarme adapter.
func TestParity(t *testing.T) {
	categories := readCorpus(t)
	for _, m := range models {
		t.Run(m.name, func(t *testing.T) {
			tok := m.load(t)
			golden := idLists(t, readGzip(t, "parity/"+m.name+".ids.gz"))
			n := 0
			for _, c := range categories {
				wrong := 0
				for _, text := range c.Texts {
					want := golden[n]
					n++
					got, err := tok.Encode(text)
					if err != nil {
						t.Fatalf("Encode(%q): %v", text, err)
					}
					if !slices.Equal(got, want) {
						if wrong++; wrong <= 3 {
							t.Errorf("%s: Encode(%q)\n got %v\nwant %v", c.Name, text, got, want)
						}
					}
					if shell := sugarEncode(t, tok, text); !slices.Equal(shell, want) {
						if wrong++; wrong <= 3 {
							t.Errorf("%s: Sugar().EncodeSingle(%q)\n got %v\nwant %v", c.Name, text, shell, want)
						}
					}
				}
				if wrong > 0 {
					t.Errorf("%s: %d wrong of %d strings", c.Name, wrong, len(c.Texts))
				}
			}
			if n != len(golden) || n < 4000 {
				t.Errorf("%d strings, %d golden lists; both should be equal and at least 4000", n, len(golden))
			}
		})
	}
}

func sugarEncode(t testing.TB, tok *Tokenizer, text string) []int32 {
	t.Helper()
	encoding, err := tok.Sugar().EncodeSingle(text)
	if err != nil {
		t.Fatalf("Sugar().EncodeSingle(%q): %v", text, err)
	}
	ids := make([]int32, len(encoding.Ids))
	for i, id := range encoding.Ids {
		ids[i] = int32(id)
	}
	return ids
}

// TestParityDecode compares texts with the reference engine on random ids, in
// one go and as a stream.
func TestParityDecode(t *testing.T) {
	for _, m := range models {
		t.Run(m.name, func(t *testing.T) {
			tok := m.load(t)
			var golden struct {
				IDs        [][]int32 `json:"ids"`
				All, Plain []string
			}
			readGoldenJSON(t, m.name+".decode.json.gz", &golden)
			if len(golden.IDs) < 1000 {
				t.Fatalf("only %d golden lists", len(golden.IDs))
			}
			for i, ids := range golden.IDs {
				for skip, want := range map[bool]string{false: golden.All[i], true: golden.Plain[i]} {
					if got := tok.Decode(ids, skip); got != want {
						t.Fatalf("Decode(%v, %v)\n got %q\nwant %q", ids, skip, got, want)
					}
					if got := streamed(tok, ids, skip); got != want {
						t.Fatalf("stream of %v, skip %v\n got %q\nwant %q", ids, skip, got, want)
					}
				}
			}
		})
	}
}

func streamed(tok *Tokenizer, ids []int32, skip bool) string {
	s := tok.NewStream(skip)
	var text string
	for _, id := range ids {
		text += s.Push(id)
	}
	return text + s.Flush()
}

// variantJSON are changes to tiny-gsm's tokenizer.json that bring in other
// parts of the format.
type variantJSON struct {
	Name         string          `json:"name"`
	PreTokenizer json.RawMessage `json:"pre_tokenizer"`
	Normalizer   json.RawMessage `json:"normalizer"`
	AddedTokens  json.RawMessage `json:"added_tokens"`
	IgnoreMerges bool            `json:"ignore_merges"`
}

func (v variantJSON) build(t testing.TB) *Tokenizer {
	t.Helper()
	var file, model map[string]json.RawMessage
	unmarshal(t, readFileT(t, filepath.Join(tinyDir, "tokenizer.json")), &file)
	for key, part := range map[string]json.RawMessage{"pre_tokenizer": v.PreTokenizer, "normalizer": v.Normalizer, "added_tokens": v.AddedTokens} {
		if part != nil {
			file[key] = part
		}
	}
	unmarshal(t, file["model"], &model)
	model["ignore_merges"] = marshal(t, v.IgnoreMerges)
	file["model"] = marshal(t, model)
	tok, err := New(marshal(t, file), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func unmarshal(t testing.TB, data []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatal(err)
	}
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestParityVariants compares other expressions, ignore_merges and the flags
// of added tokens with the reference engine.
func TestParityVariants(t *testing.T) {
	var variants []variantJSON
	unmarshal(t, readFileT(t, "testdata/parity/variants.json"), &variants)
	var golden struct {
		Texts    []string
		Variants []struct {
			Name    string
			IDs     [][]int32 `json:"ids"`
			Decoded []string
		}
	}
	readGoldenJSON(t, "variants.golden.json.gz", &golden)
	for i, v := range variants {
		t.Run(v.Name, func(t *testing.T) {
			want := golden.Variants[i]
			if want.Name != v.Name || len(want.IDs) != len(golden.Texts) {
				t.Fatalf("golden file is of another variant or corpus: %q", want.Name)
			}
			tok := v.build(t)
			wrong := 0
			for i, text := range golden.Texts {
				got, err := tok.Encode(text)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got, want.IDs[i]) {
					if wrong++; wrong <= 3 {
						t.Errorf("Encode(%q)\n got %v\nwant %v", text, got, want.IDs[i])
					}
				}
			}
			if wrong > 0 {
				t.Errorf("%d wrong of %d strings", wrong, len(golden.Texts))
			}
			for i, text := range want.Decoded {
				ids := want.IDs[len(want.IDs)-len(want.Decoded)+i]
				if got := tok.Decode(ids, true); got != text {
					t.Errorf("Decode(%v)\n got %q\nwant %q", ids, got, text)
				}
			}
		})
	}
}

// TestParitySweep compares some 900,000 strings that are not kept: every code
// point in six contexts among them. It needs files made by generate.mjs
// --sweep DIR, and WINDROW_PARITY_SWEEP=DIR.
func TestParitySweep(t *testing.T) {
	dir := os.Getenv("WINDROW_PARITY_SWEEP")
	if dir == "" {
		t.Skip("WINDROW_PARITY_SWEEP is not set")
	}
	var texts, normal []string
	unmarshal(t, readFileT(t, filepath.Join(dir, "texts.json")), &texts)
	unmarshal(t, readFileT(t, filepath.Join(dir, "nfc.json")), &normal)
	for i, text := range texts {
		if got := nfc(text); got != normal[i] {
			t.Errorf("nfc(%+q)\n got %+q\nwant %+q", text, got, normal[i])
		}
		if got := slowNFC(text); got != normal[i] {
			t.Errorf("slowNFC(%+q)\n got %+q\nwant %+q", text, got, normal[i])
		}
	}
	for _, m := range models {
		tok := m.load(t)
		golden := idLists(t, readFileT(t, filepath.Join(dir, m.name+".ids")))
		wrong := 0
		for i, text := range texts {
			got, err := tok.Encode(text)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, golden[i]) {
				if wrong++; wrong <= 10 {
					t.Errorf("%s: Encode(%+q)\n got %v\nwant %v", m.name, text, got, golden[i])
				}
			}
		}
		t.Logf("%s: %d wrong of %d strings", m.name, wrong, len(texts))
	}
}

var _ sugarme.Model = sugarModel{}
