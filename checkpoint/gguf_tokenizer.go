package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"strconv"
	"unicode/utf8"
)

// qwenSplit is the expression that pre-tokenizers of Qwen's kind split by.
const qwenSplit = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// qwen35Split is that of Qwen3.5: combining marks are among letters.
const qwen35Split = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// ggufSplits are the expressions that values of tokenizer.ggml.pre stand for.
var ggufSplits = map[string]string{"qwen2": qwenSplit, "deepseek-r1-qwen": qwenSplit, "qwen35": qwen35Split}

// The kinds of tokens in tokenizer.ggml.token_type.
const (
	ggufTokenNormal      = 1
	ggufTokenControl     = 3
	ggufTokenUserDefined = 4
	ggufTokenUnused      = 5 // the converter's padding of the vocabulary
)

// tokenizerJSON makes the tokenizer.json that stands for the file's metadata;
// fs.ErrNotExist where the file has no tokenizer.
func (g *GGUF) tokenizerJSON() ([]byte, error) {
	tokens, kinds, err := g.tokens()
	if err != nil {
		return nil, err
	}
	pre, _ := g.Value("tokenizer.ggml.pre")
	name, _ := pre.(string)
	expression, known := ggufSplits[name]
	if !known {
		return nil, fmt.Errorf("tokenizer.ggml.pre: found %.40q, want qwen2 or qwen35", fmt.Sprint(pre))
	}
	merges, ok := g.metadataTexts("tokenizer.ggml.merges")
	if !ok {
		return nil, fmt.Errorf("tokenizer.ggml.merges: missing, want a list of strings")
	}
	var b bytes.Buffer
	b.Grow(32 * (len(tokens) + len(merges)))
	b.WriteString(`{"version":"1.0","added_tokens":[`)
	first := true
	for id, kind := range kinds {
		if kind != ggufTokenControl && kind != ggufTokenUserDefined {
			continue
		}
		comma(&b, &first)
		fmt.Fprintf(&b, `{"id":%d,"content":`, id)
		if err := writeText(&b, tokens[id]); err != nil {
			return nil, fmt.Errorf("tokenizer.ggml.tokens[%d]: %w", id, err)
		}
		fmt.Fprintf(&b, `,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":%t}`, kind == ggufTokenControl)
	}
	split, err := json.Marshal(expression)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(&b, `],"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Sequence","pretokenizers":[`+
		`{"type":"Split","pattern":{"Regex":%s},"behavior":"Isolated","invert":false},`+
		`{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":false}]},`+
		`"decoder":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":false},`+
		`"model":{"type":"BPE","vocab":{`, split)
	first = true
	for id, token := range tokens {
		if kinds[id] != ggufTokenNormal {
			continue
		}
		comma(&b, &first)
		if err := writeText(&b, token); err != nil {
			return nil, fmt.Errorf("tokenizer.ggml.tokens[%d]: %w", id, err)
		}
		b.Write(strconv.AppendInt(append(b.AvailableBuffer(), ':'), int64(id), 10))
	}
	b.WriteString(`},"merges":[`)
	first = true
	for i, merge := range merges {
		comma(&b, &first)
		if err := writeText(&b, merge); err != nil {
			return nil, fmt.Errorf("tokenizer.ggml.merges[%d]: %w", i, err)
		}
	}
	b.WriteString(`]}}`)
	return b.Bytes(), nil
}

// tokens returns the vocabulary and each token's kind.
func (g *GGUF) tokens() (tokens []string, kinds []int32, err error) {
	model, ok := g.Value("tokenizer.ggml.model")
	if !ok {
		return nil, nil, fmt.Errorf("tokenizer.ggml.model: missing: the file has no tokenizer: %w", fs.ErrNotExist)
	}
	if model != "gpt2" {
		return nil, nil, fmt.Errorf("tokenizer.ggml.model: found %.40q, want gpt2: byte-level BPE", fmt.Sprint(model))
	}
	tokens, ok = g.metadataTexts("tokenizer.ggml.tokens")
	if !ok {
		return nil, nil, fmt.Errorf("tokenizer.ggml.tokens: missing, want a list of strings")
	}
	value, _ := g.Value("tokenizer.ggml.token_type")
	kinds, ok = value.([]int32)
	if !ok || len(kinds) != len(tokens) {
		return nil, nil, fmt.Errorf("tokenizer.ggml.token_type: %d numbers, want one for each of %d tokens", len(kinds), len(tokens))
	}
	for id, kind := range kinds {
		switch kind {
		case ggufTokenNormal, ggufTokenControl, ggufTokenUserDefined, ggufTokenUnused:
		default:
			return nil, nil, fmt.Errorf("tokenizer.ggml.token_type[%d]: found %d, want 1, 3, 4 or 5 of byte-level BPE", id, kind)
		}
	}
	return tokens, kinds, nil
}

// tokenizerConfigJSON makes the tokenizer_config.json: the names of control
// tokens, and the chat template.
func (g *GGUF) tokenizerConfigJSON() ([]byte, error) {
	tokens, _, err := g.tokens()
	if err != nil {
		return nil, err
	}
	c := map[string]any{"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": false}
	for field, name := range map[string]string{"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "mask_token": "mask"} {
		if id, ok := g.tokenID(name); ok && id < int64(len(tokens)) {
			c[field] = tokens[id]
		}
	}
	if template, ok := g.Value("tokenizer.chat_template"); ok {
		text, ok := template.(string)
		if !ok || !utf8.ValidString(text) {
			return nil, fmt.Errorf("tokenizer.chat_template: want a string of UTF-8")
		}
		c["chat_template"] = text
	}
	return json.Marshal(c)
}

func (g *GGUF) metadataTexts(key string) ([]string, bool) {
	value, _ := g.Value(key)
	list, ok := value.([]string)
	return list, ok
}

// comma writes one but for the first time.
func comma(b *bytes.Buffer, first *bool) {
	if !*first {
		b.WriteByte(',')
	}
	*first = false
}

// writeText writes a JSON string. json.Marshal would put U+FFFD for bytes that
// are no UTF-8, and so merge tokens.
func writeText(b *bytes.Buffer, s string) error {
	plain, ascii := true, true
	for i := range len(s) {
		plain = plain && s[i] >= ' ' && s[i] != '"' && s[i] != '\\'
		ascii = ascii && s[i] < utf8.RuneSelf
	}
	if !ascii && !utf8.ValidString(s) {
		return fmt.Errorf("found %.40q, want UTF-8", s)
	}
	if plain { // as nearly all of 300,000 are
		b.WriteByte('"')
		b.WriteString(s)
		b.WriteByte('"')
		return nil
	}
	text, err := json.Marshal(s)
	b.Write(text)
	return err
}
