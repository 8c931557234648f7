package tokenizer

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// smallFile is the least tokenizer.json that New takes, with changes applied
// by the caller: 256 byte tokens and one merge.
func smallFile(t testing.TB, change func(file, model map[string]any)) []byte {
	t.Helper()
	vocab := map[string]int{}
	for b, r := range byteRune {
		vocab[string(r)] = b
	}
	vocab["ab"] = 256
	model := map[string]any{"type": "BPE", "vocab": vocab, "merges": []any{"a b"}}
	file := map[string]any{
		"model":         model,
		"normalizer":    nil,
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
		"decoder":       map[string]any{"type": "ByteLevel"},
		"added_tokens":  []any{map[string]any{"id": 257, "content": "<end>", "special": true}},
	}
	if change != nil {
		change(file, model)
	}
	return marshal(t, file)
}

// badFiles are tokenizer.json files that New must refuse, with a part of the
// message. They seed FuzzNew too.
func badFiles(t testing.TB) map[string]struct {
	data []byte
	want string
} {
	type m = map[string]any
	out := make(map[string]struct {
		data []byte
		want string
	})
	add := func(name, want string, change func(file, model m)) {
		out[name] = struct {
			data []byte
			want string
		}{smallFile(t, change), want}
	}
	added := func(tokens ...any) func(file, model m) {
		return func(file, _ m) { file["added_tokens"] = tokens }
	}
	pre := func(v any) func(file, model m) { return func(file, _ m) { file["pre_tokenizer"] = v } }
	byteLevel := m{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}
	split := func(pattern any, behavior string, invert bool) m {
		return m{"type": "Sequence", "pretokenizers": []any{m{"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}, byteLevel}}
	}
	set := func(key string, v any) func(file, model m) { return func(_, model m) { model[key] = v } }

	add("Unigram", `"Unigram"`, func(_, model m) { model["type"] = "Unigram"; model["vocab"] = []any{[]any{"a", -1.5}} })
	add("WordPiece", `"WordPiece"`, set("type", "WordPiece"))
	add("byte fallback", "byte_fallback", set("byte_fallback", true))
	add("dropout", "dropout", set("dropout", 0.1))
	add("prefix", "continuing_subword_prefix", set("continuing_subword_prefix", "##"))
	add("suffix", "end_of_word_suffix", set("end_of_word_suffix", "</w>"))
	add("no model", `no "model"`, func(file, _ m) { delete(file, "model") })
	add("no vocab", "vocab is empty", set("vocab", m{}))
	add("vocab a list", "model.vocab", set("vocab", []any{"a"}))
	add("vocab with text ids", "not a whole number", set("vocab", m{"a": "1"}))
	add("vocab with fractions", "not a whole number", set("vocab", m{"a": 1.5}))
	add("vocab with objects", "not a whole number", set("vocab", m{"a": m{"b": 1}}))
	add("negative id", "outside", func(_, model m) { model["vocab"].(map[string]int)["x"] = -1 })
	add("huge id", "outside", func(_, model m) { model["vocab"].(map[string]int)["xx"] = 1 << 40 })
	add("id of two tokens", "two tokens", func(_, model m) { model["vocab"].(map[string]int)["xx"] = 7 })
	add("empty token", "empty token", func(_, model m) { model["vocab"].(map[string]int)[""] = 300 })
	add("missing byte", "for byte 0x61", func(_, model m) { delete(model["vocab"].(map[string]int), "a") })
	add("unknown merge", `names "q!"`, set("merges", []any{"q! b"}))
	add("merge right unknown", `names "zz"`, set("merges", []any{[]any{"a", "zz"}}))
	add("merge makes unknown", `makes "ba"`, set("merges", []any{"b a"}))
	add("cyclic merge", "empty part", set("merges", []any{[]any{"a", ""}}))
	add("merge of three", "two parts", set("merges", []any{"a b c"}))
	add("merge of one", "two parts", set("merges", []any{"a"}))
	add("merge pair of three", "not a pair", set("merges", []any{[]any{"a", "b", "c"}}))
	add("merge pair of numbers", "not a pair", set("merges", []any{[]any{1, 2}}))
	add("merge a number", "neither", set("merges", []any{12}))
	add("merges an object", "list is expected", set("merges", m{"a": "b"}))
	add("added with a used id", "two tokens", added(m{"id": 3, "content": "<x>"}))
	add("added with another id", "two ids", added(m{"id": 300, "content": "ab"}))
	add("added twice", "two ids", added(m{"id": 257, "content": "<x>"}, m{"id": 258, "content": "<x>"}))
	add("added with a huge id", "outside", added(m{"id": 1 << 31, "content": "<x>"}))
	add("added with a negative id", "outside", added(m{"id": -5, "content": "<x>"}))
	add("added too long", "at most", added(m{"id": 257, "content": strings.Repeat("x", 5000)}))
	add("added of wrong type", "added_tokens", added(m{"id": "x", "content": "<x>"}))
	add("normalizer", "NFKC", func(file, _ m) { file["normalizer"] = m{"type": "NFKC"} })
	add("normalizer in sequence", "Lowercase", func(file, _ m) {
		file["normalizer"] = m{"type": "Sequence", "normalizers": []any{m{"type": "NFC"}, m{"type": "Lowercase"}}}
	})
	add("normalizer a string", "normalizer", func(file, _ m) { file["normalizer"] = "NFC" })
	add("no pre-tokenizer", "no pre_tokenizer", pre(nil))
	add("Metaspace", "Metaspace", pre(m{"type": "Metaspace"}))
	add("empty sequence", "empty sequence", pre(m{"type": "Sequence", "pretokenizers": []any{}}))
	add("no ByteLevel", "not supported there", pre(m{"type": "Sequence", "pretokenizers": []any{m{"type": "Split", "pattern": m{"Regex": "a"}, "behavior": "Isolated"}}}))
	add("prefix space", "add_prefix_space", pre(m{"type": "ByteLevel", "use_regex": false}))
	add("bad expression", "Split", pre(split(m{"Regex": "(a"}, "Isolated", false)))
	add("text pattern", "Regex", pre(split(m{"String": "a"}, "Isolated", false)))
	add("pattern a string", "pattern", pre(split("a", "Isolated", false)))
	add("behavior", "MergedWithNext", pre(split(m{"Regex": "a"}, "MergedWithNext", false)))
	add("no decoder", "no decoder", func(file, _ m) { file["decoder"] = nil })
	add("decoder", "WordPiece", func(file, _ m) { file["decoder"] = m{"type": "WordPiece"} })

	whole := smallFile(t, nil)
	for name, c := range map[string]struct{ data, want string }{
		"empty": {"", "not valid JSON"}, "null": {"null", "no \"model\""}, "a list": {"[]", "array"}, "garbage": {"\x00\xff", "not valid JSON"},
		"not UTF-8": {strings.Replace(string(whole), `\u003cend`, "\xff", 1), "UTF-8"},
		"truncated": {string(whole[:len(whole)/2]), "not valid JSON at byte"}, "text after": {string(whole) + "x", "not valid JSON"},
		"deep": {strings.Repeat(`{"model":`, 20_000), "JSON"},
	} {
		out[name] = struct {
			data []byte
			want string
		}{[]byte(c.data), c.want}
	}
	return out
}

func TestNewRefuses(t *testing.T) {
	for name, bad := range badFiles(t) {
		t.Run(name, func(t *testing.T) {
			_, err := New(bad.data, nil)
			if err == nil || !strings.Contains(err.Error(), bad.want) || !strings.HasPrefix(err.Error(), "tokenizer.json: ") {
				t.Fatalf("error %v, want one of tokenizer.json with %q", err, bad.want)
			}
			if strings.Contains(err.Error(), "\n") || len(err.Error()) > 300 {
				t.Errorf("the error is not one short line: %q", err)
			}
		})
	}
}

func TestNewAccepts(t *testing.T) {
	tok, err := New(smallFile(t, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	if ids, err := tok.Encode("ab<end>"); err != nil || len(ids) != 2 || ids[0] != 256 || ids[1] != 257 {
		t.Errorf("ids %v, %v; want [256 257]", ids, err)
	}
	if _, ok := tok.EOS(); ok {
		t.Error("EOS is known without a tokenizer_config.json")
	}
	// Gaps between ids are allowed and have no token.
	tok, err = New(smallFile(t, func(_, model map[string]any) { model["vocab"].(map[string]int)["zz"] = 1000 }), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := tok.Token(999); ok || tok.Size() != 1001 {
		t.Errorf("Size() = %d, want 1001; id 999 has a token: %v", tok.Size(), ok)
	}
	if got := tok.Decode([]int32{999, 97, -7, 1 << 30}, false); got != tok.Decode([]int32{97}, false) {
		t.Errorf("ids without a token decode to %q", got)
	}
}

func TestConfig(t *testing.T) {
	file := smallFile(t, nil)
	for name, c := range map[string]struct{ config, want string }{
		"truncated":           {`{"eos_token": `, "not valid JSON"},
		"eos of wrong type":   {`{"eos_token": 5}`, "tokenizer_config.json"},
		"template a number":   {`{"chat_template": 5}`, "chat_template"},
		"added not an id":     {`{"added_tokens_decoder": {"x": {"content": "<m>"}}}`, `"x"`},
		"added with used id":  {`{"added_tokens_decoder": {"97": {"content": "<m>"}}}`, "two tokens"},
		"added with huge id":  {`{"added_tokens_decoder": {"99999999": {"content": "<m>"}}}`, "outside"},
		"added past any id":   {`{"added_tokens_decoder": {"99999999999999": {"content": "<m>"}}}`, "not a token id"},
		"added with other id": {`{"added_tokens_decoder": {"300": {"content": "ab"}}}`, "two ids"},
	} {
		if _, err := New(file, []byte(c.config)); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want one line with %q", name, err, c.want)
		}
	}

	// tokenizer_config.json may add a token, such as WeDLM's mask.
	tok, err := New(file, []byte(`{"eos_token": {"content": "<end>"}, "pad_token": null, "added_tokens_decoder": {"257": {"content": "<end>", "special": true},
		"300": {"content": "<m>", "special": true}}, "chat_template": [{"name": "rag", "template": "no"}, {"name": "default", "template": "yes"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if ids, _ := tok.Encode("<m>"); len(ids) != 1 || ids[0] != 300 || !tok.Special(300) || tok.Size() != 301 {
		t.Errorf("the added token encodes to %v; size %d", ids, tok.Size())
	}
	if id, ok := tok.EOS(); !ok || id != 257 {
		t.Errorf("EOS() = %d, %v; want 257", id, ok)
	}
	if _, ok := tok.Pad(); ok {
		t.Error("Pad is known; the file says null")
	}
	if got, err := tok.RenderChat(t.Context(), nil, ChatOptions{}); err != nil || got != "yes" {
		t.Errorf("RenderChat = %q, %v; want the default template", got, err)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(testFolder(dir)); err == nil || !strings.Contains(err.Error(), "tokenizer.json") {
		t.Errorf("Load of an empty folder: %v", err)
	}
	write := func(name string, data []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("tokenizer.json", smallFile(t, nil))
	tok, err := Load(testFolder(dir))
	if err != nil || tok.HasChatTemplate() {
		t.Fatalf("Load: %v, template %v", err, tok.HasChatTemplate())
	}
	write("tokenizer_config.json", []byte(`{"chat_template": "old"}`))
	write("chat_template.jinja", []byte("new {{ messages | length }}"))
	tok, err = Load(testFolder(dir))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := tok.RenderChat(t.Context(), []Message{{Role: "user"}}, ChatOptions{}); err != nil || got != "new 1" {
		t.Errorf("RenderChat = %q, %v; want that of chat_template.jinja", got, err)
	}
	write("tokenizer_config.json", []byte(`{`))
	if _, err := Load(testFolder(dir)); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("error %v, want one that names the folder", err)
	}
	// An optional file that is there and cannot be read is an error.
	write("tokenizer_config.json", []byte(`{}`))
	for _, name := range []string{"chat_template.jinja", "tokenizer_config.json", "tokenizer.json"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o755)); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(testFolder(dir)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is a folder: error %v, want one that names it", name, err)
		}
	}
}

// TestSlowExpression: an expression that backtracks without end is stopped.
func TestSlowExpression(t *testing.T) {
	t.Parallel()
	tok, err := New(smallFile(t, func(file, _ map[string]any) {
		file["pre_tokenizer"] = json.RawMessage(`{"type": "Sequence", "pretokenizers": [
			{"type": "Split", "pattern": {"Regex": "(a|a|aa)+$"}, "behavior": "Isolated"}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]}`)
	}), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tok.Encode(strings.Repeat("a", 60) + "b"); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want one line about the time", err)
	}
}
