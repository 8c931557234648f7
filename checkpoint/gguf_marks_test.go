package checkpoint_test

import (
	"bytes"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/tokenizer"
)

// The name of a pre-tokenizer in a GGUF file decides whether a combining mark is in one
// word with the letter before it, where the two can merge.
func TestGGUFMarks(t *testing.T) {
	var tokens []string
	var kinds []int32
	next := rune(256)
	for b := range rune(256) { // the letters that stand for bytes
		r := b
		if b <= ' ' || b > '~' && b < '¡' || b == 0xad {
			r, next = next, next+1
		}
		tokens, kinds = append(tokens, string(r)), append(kinds, 1)
	}
	tokens, kinds = append(tokens, "xÌ"), append(kinds, 1) // x and the first byte of U+0301
	for pre, want := range map[string]int{"qwen2": 3, "qwen35": 2} {
		metadata := []checkpoint.GGUFField{
			{Key: "general.architecture", Value: "qwen3"}, {Key: "qwen3.block_count", Value: uint32(1)}, {Key: "qwen3.embedding_length", Value: uint32(8)}, {Key: "qwen3.attention.head_count", Value: uint32(1)},
			{Key: "qwen3.feed_forward_length", Value: uint32(8)}, {Key: "qwen3.context_length", Value: uint32(64)}, {Key: "qwen3.attention.layer_norm_rms_epsilon", Value: float32(1e-6)},
			{Key: "tokenizer.ggml.model", Value: "gpt2"}, {Key: "tokenizer.ggml.pre", Value: pre}, {Key: "tokenizer.ggml.tokens", Value: tokens},
			{Key: "tokenizer.ggml.token_type", Value: kinds}, {Key: "tokenizer.ggml.merges", Value: []string{"x Ì"}},
		}
		var file bytes.Buffer
		embedding := checkpoint.GGUFTensor{Name: "token_embd.weight", DType: backend.BF16, Shape: []int{257, 8}, Data: make([]byte, 257*8*2)}
		if err := checkpoint.WriteGGUF(&file, metadata, []checkpoint.GGUFTensor{embedding}); err != nil {
			t.Fatal(err)
		}
		c, err := checkpoint.NewGGUF(file.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		text, err := c.ReadFile("tokenizer.json")
		if err != nil {
			t.Fatal(err)
		}
		tok, err := tokenizer.New(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		if ids, err := tok.Encode("x\u0301"); err != nil || len(ids) != want {
			t.Errorf("%s: %v, %v, want %d tokens", pre, ids, err, want)
		}
	}
}
