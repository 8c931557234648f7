package tokenizer

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzNew: any tokenizer.json is refused or gives a tokenizer that encodes
// and decodes.
func FuzzNew(f *testing.F) {
	f.Add(smallFile(f, nil), []byte(`{"eos_token": "<end>", "chat_template": "{{ messages }}"}`))
	for _, bad := range badFiles(f) {
		if len(bad.data) < 1<<14 {
			f.Add(bad.data, []byte(`{"added_tokens_decoder": {"300": {"content": "<m>"}}}`))
		}
	}
	f.Fuzz(func(t *testing.T, file, config []byte) {
		tok, err := New(file, config)
		if err != nil {
			return
		}
		if tok.Size() > 8*len(file)+1<<20 {
			t.Fatalf("a file of %d bytes made a table of %d tokens", len(file), tok.Size())
		}
		for _, r := range tok.splitters {
			if _, slow := r.(regexpSplitter); slow {
				return // expressions are bounded by time: too slow to fuzz
			}
		}
		ids, err := tok.Encode("abab <end><m>\u00e9\u0301 aba")
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if _, ok := tok.Token(id); !ok {
				t.Fatalf("id %d has no token", id)
			}
		}
		tok.Decode(append(ids, -1, 1<<30), true)
	})
}

// FuzzEncodeDecode: text comes back as it was (in NFC), the core's ids are
// those of the sugarme adapter, and plain text never has control tokens.
func FuzzEncodeDecode(f *testing.F) {
	for _, c := range readCorpus(f) {
		for i, text := range c.Texts {
			if i%40 == 0 {
				f.Add(text)
			}
		}
	}
	tok := tiny(f)
	f.Fuzz(func(t *testing.T, text string) {
		ids, err := tok.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		if !utf8.ValidString(text) { // on which sugarme's own code panics
			text = lossy(text)
		}
		if got := sugarEncode(t, tok, text); !slices.Equal(got, ids) {
			t.Errorf("Encode(%q)\n core  %v\n sugar %v", text, ids, got)
		}
		plain, err := tok.EncodePlain(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range plain {
			if tok.Special(id) {
				t.Errorf("EncodePlain(%q) holds control token %d", text, id)
			}
		}
		if want := nfc(text); tok.Decode(plain, true) != want {
			t.Errorf("EncodePlain(%q) decodes to %q, want %q", text, tok.Decode(plain, true), want)
		}
		if slow := slowNFC(text); slow != nfc(text) {
			t.Errorf("nfc(%+q) = %+q, slowly %+q", text, nfc(text), slow)
		}
	})
}

// FuzzStream: the pieces of a stream join to Decode's text, and none ends
// inside a character.
func FuzzStream(f *testing.F) {
	f.Add([]byte{0, 1, 2}, false)
	f.Add([]byte{15, 252, 15, 253}, true)
	for _, text := range []string{"😀👍🏽", "\xff\xfe\xe2\x82", "a<|im_end|>b", "好\xf0\x9f"} {
		f.Add([]byte(text), true)
	}
	tok := tiny(f)
	f.Fuzz(func(t *testing.T, data []byte, skip bool) {
		// Twice: as ids of two bytes each, and as ids of single bytes.
		var wide, narrow []int32
		for i, b := range data {
			narrow = append(narrow, tok.bpe.byteID[b])
			if i%2 == 1 {
				wide = append(wide, int32(data[i-1])<<8|int32(b))
			}
		}
		for _, ids := range [][]int32{wide, narrow} {
			s, joined := tok.NewStream(skip), ""
			for _, id := range ids {
				piece := s.Push(id)
				if !utf8.ValidString(piece) {
					t.Fatalf("piece %q is not valid UTF-8", piece)
				}
				if len(s.pending) > 3 {
					t.Fatalf("%d bytes are held back", len(s.pending))
				}
				joined += piece
			}
			if want := tok.Decode(ids, skip); joined+s.Flush() != want {
				t.Fatalf("stream gave %q, Decode %q", joined, want)
			}
		}
	})
}

// FuzzTemplate: any template renders or is refused in one line.
func FuzzTemplate(f *testing.F) {
	f.Add(`{% for m in messages %}{{ m.role }}{{ m['content'] | trim }}{% endfor %}`)
	f.Add(`{% macro f(x) %}{{ x }}{% endmacro %}{{ f(messages[-1].content.split('</think>')[0]) }}`)
	f.Add(`{% set ns = namespace(a=1) %}{% set ns.a = ns.a + 1 %}{{ ns.a | tojson }}{{ tools | tojson(indent=2) }}`)
	f.Add(`{{ raise_exception('no') }}`)
	messages := []Message{{Role: "user", Content: "a</think>b"}, {Role: "assistant", ToolCalls: json.RawMessage(`[{"function": {"name": "f", "arguments": {"x": 1.0}}}]`)}}
	f.Fuzz(func(t *testing.T, source string) {
		tok := &Tokenizer{template: chatTemplate{source: source}}
		_, err := tok.RenderChat(t.Context(), messages, ChatOptions{Tools: json.RawMessage(`[{"a": [1, 2.5, null, true, "x"]}]`)})
		if err != nil && (len(err.Error()) > 400 || strings.ContainsAny(err.Error(), "\n\x1b")) {
			t.Errorf("the error is no short line: %q", err)
		}
	})
}
