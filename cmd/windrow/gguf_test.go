package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/models/tinygsm"
	"windrow/quant"
)

// writeGGUF is "gguf FILE TYPE [mask|bare]": the embedded model as a GGUF file
// of architecture qwen3, matrices in TYPE where their rows take it, else in
// q8_0, vectors in f32, as llama.cpp's converter does. mask notes the mask
// token's id in the metadata; bare leaves the tokenizer out.
func writeGGUF(ts *testscript.TestScript, neg bool, args []string) {
	types := map[string]backend.DType{}
	for _, d := range []backend.DType{backend.F16, backend.BF16, backend.Q8_0, backend.Q4_0, backend.Q4_K, backend.Q6_K} {
		types[d.String()] = d
	}
	if neg || len(args) < 2 || len(args) > 3 || types[args[1]] == 0 {
		ts.Fatalf("usage: gguf file type [mask|bare]")
	}
	src, err := checkpoint.New(tinygsm.Files())
	ts.Check(err)
	c := src.Config()
	metadata := ggufConfig(c)
	switch kind := append(args, "")[2]; kind {
	case "mask":
		metadata = append(metadata, checkpoint.GGUFField{Key: "tokenizer.ggml.mask_token_id", Value: uint32(c.MaskTokenID)})
		fallthrough
	case "":
		metadata = append(metadata, ggufVocabulary(ts.Check, c.VocabSize)...)
	}
	var tensors []checkpoint.GGUFTensor
	for _, name := range src.Names() {
		t, _ := src.Tensor(name)
		tensors = append(tensors, ggufTensor(ts, t, types[args[1]]))
	}
	f, err := os.Create(ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Check(checkpoint.WriteGGUF(f, metadata, tensors))
	ts.Check(f.Close())
}

// ggufConfig is a config as metadata.
func ggufConfig(c *checkpoint.Config) []checkpoint.GGUFField {
	return []checkpoint.GGUFField{
		{Key: "general.architecture", Value: "qwen3"}, {Key: "qwen3.block_count", Value: uint32(c.Layers)},
		{Key: "qwen3.context_length", Value: uint32(c.MaxPositions)}, {Key: "qwen3.embedding_length", Value: uint32(c.HiddenSize)},
		{Key: "qwen3.feed_forward_length", Value: uint32(c.IntermediateSize)}, {Key: "qwen3.attention.head_count", Value: uint32(c.Heads)},
		{Key: "qwen3.attention.head_count_kv", Value: uint32(c.KVHeads)}, {Key: "qwen3.attention.key_length", Value: uint32(c.HeadDim)},
		{Key: "qwen3.rope.freq_base", Value: float32(c.Rope.Theta)}, {Key: "qwen3.attention.layer_norm_rms_epsilon", Value: c.RMSNormEps},
		{Key: "tokenizer.ggml.eos_token_id", Value: uint32(c.EOSTokenIDs[0])},
	}
}

// tinyGGUF is the embedded model as a GGUF file's metadata and its vectors.
func tinyGGUF(t *testing.T) (metadata []checkpoint.GGUFField, tensors []checkpoint.GGUFTensor) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	src, err := checkpoint.New(tinygsm.Files())
	check(err)
	c := src.Config()
	for _, name := range src.Names() {
		if t, _ := src.Tensor(name); len(t.Shape) == 1 {
			tensors = append(tensors, checkpoint.GGUFTensor{Name: ggufNames.Replace(name), DType: backend.F32, Shape: t.Shape, Data: make([]byte, 4*t.Shape[0])})
		}
	}
	return append(ggufConfig(c), ggufVocabulary(check, c.VocabSize)...), tensors
}

var ggufNames = strings.NewReplacer("model.embed_tokens", "token_embd", "model.norm", "output_norm", "model.layers", "blk",
	"input_layernorm", "attn_norm", "post_attention_layernorm", "ffn_norm", "self_attn.o_proj", "attn_output", "self_attn.", "attn_",
	"mlp.", "ffn_", "_proj", "")

// ggufTensor converts a tensor row by row.
func ggufTensor(ts *testscript.TestScript, t backend.Tensor, d backend.DType) checkpoint.GGUFTensor {
	in := t.Shape[len(t.Shape)-1]
	switch {
	case len(t.Shape) == 1:
		d = backend.F32
	case d.RowBytes(in) == 0:
		d = backend.Q8_0
	}
	stride, row := d.RowBytes(in), make([]float32, in)
	data := make([]byte, t.Elements()/in*stride)
	for o := range t.Elements() / in {
		quant.Row(row, &t, o)
		if !quant.Blocks(data[o*stride:], d, row) {
			ts.Fatalf("%s: cannot write %v", t.Name, d)
		}
	}
	return checkpoint.GGUFTensor{Name: ggufNames.Replace(t.Name), DType: d, Shape: t.Shape, Data: data}
}

// ggufVocabulary is the embedded model's tokenizer as metadata. Kinds of
// tokens: 1 normal, 3 control, 5 unused.
func ggufVocabulary(check func(error), size int) []checkpoint.GGUFField {
	var file struct {
		Added []struct {
			ID      int
			Content string
		} `json:"added_tokens"`
		Model struct {
			Vocab  map[string]int
			Merges []any
		}
	}
	var config struct {
		Template string `json:"chat_template"`
	}
	check(json.Unmarshal(tinygsm.Files()["tokenizer.json"], &file))
	check(json.Unmarshal(tinygsm.Files()["tokenizer_config.json"], &config))
	tokens, kinds := make([]string, size), make([]int32, size)
	for id := range tokens {
		tokens[id], kinds[id] = fmt.Sprintf("[PAD%d]", id), 5
	}
	for token, id := range file.Model.Vocab {
		tokens[id], kinds[id] = token, 1
	}
	for _, a := range file.Added {
		tokens[a.ID], kinds[a.ID] = a.Content, 3
	}
	var merges []string
	for _, m := range file.Model.Merges {
		if pair, ok := m.([]any); ok {
			m = fmt.Sprintf("%s %s", pair...)
		}
		merges = append(merges, m.(string))
	}
	return []checkpoint.GGUFField{
		{Key: "tokenizer.ggml.model", Value: "gpt2"}, {Key: "tokenizer.ggml.pre", Value: "qwen2"},
		{Key: "tokenizer.ggml.tokens", Value: tokens}, {Key: "tokenizer.ggml.token_type", Value: kinds},
		{Key: "tokenizer.ggml.merges", Value: merges}, {Key: "tokenizer.chat_template", Value: config.Template},
	}
}
