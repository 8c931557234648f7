package model_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/conformance/backendtest"
	"windrow/cpu"
	"windrow/model"
	"windrow/models/tinygsm"
	"windrow/quant"
	"windrow/rope"
	"windrow/synthetic"
	"windrow/tokenizer"
)

// ggufName is the name of a tensor in a GGUF file.
func ggufName(t testing.TB, name string) string {
	t.Helper()
	name = strings.NewReplacer("model.embed_tokens", "token_embd", "model.norm", "output_norm", "lm_head", "output", "model.layers", "blk",
		"input_layernorm", "attn_norm", "post_attention_layernorm", "ffn_norm", "self_attn.o_proj", "attn_output", "self_attn.", "attn_",
		"mlp.", "ffn_", "_proj", "").Replace(name)
	if strings.Contains(name, "model") {
		t.Fatalf("no GGUF name for %s", name)
	}
	return name
}

// widened is a source whose weights are all f32, decoded by package quant.
type widened struct {
	checkpoint.Source
	seen map[string]backend.Tensor // the naive forward asks for each of them often
}

func widen(src checkpoint.Source) widened { return widened{src, map[string]backend.Tensor{}} }

func (w widened) Tensor(name string) (backend.Tensor, bool) {
	if x, ok := w.seen[name]; ok {
		return x, true
	}
	x, ok := w.Source.Tensor(name)
	if !ok {
		return x, false
	}
	in := x.Shape[len(x.Shape)-1]
	wide := backend.Tensor{Name: name, DType: backend.F32, Shape: x.Shape, Data: make([]byte, 4*x.Elements())}
	row := make([]float32, in)
	for o := range x.Elements() / in {
		quant.Row(row, &x, o)
		quant.Blocks(wide.Data[4*o*in:], backend.F32, row)
	}
	w.seen[name] = wide
	return wide, true
}

// makeGGUF writes src as a GGUF file of architecture arch; matrices become
// what dtype says, vectors f32, as llama.cpp's converter does.
func makeGGUF(t testing.TB, src checkpoint.Source, arch string, tokens []checkpoint.GGUFField, dtype func(name string, in int) backend.DType) []byte {
	t.Helper()
	c := src.Config()
	metadata := append([]checkpoint.GGUFField{
		{Key: "general.architecture", Value: arch}, {Key: arch + ".block_count", Value: uint32(c.Layers)},
		{Key: arch + ".context_length", Value: uint32(c.MaxPositions)}, {Key: arch + ".embedding_length", Value: uint32(c.HiddenSize)},
		{Key: arch + ".feed_forward_length", Value: uint32(c.IntermediateSize)}, {Key: arch + ".attention.head_count", Value: uint32(c.Heads)},
		{Key: arch + ".attention.head_count_kv", Value: uint32(c.KVHeads)}, {Key: arch + ".attention.key_length", Value: uint32(c.HeadDim)},
		{Key: arch + ".rope.freq_base", Value: float32(c.Rope.Theta)}, {Key: arch + ".attention.layer_norm_rms_epsilon", Value: c.RMSNormEps},
	}, tokens...)
	var tensors []checkpoint.GGUFTensor
	for _, name := range src.Names() {
		x, _ := widen(src).Tensor(name)
		in := x.Shape[len(x.Shape)-1]
		dt := backend.F32
		if len(x.Shape) == 2 {
			dt = dtype(name, in)
		}
		row := make([]float32, x.Elements())
		quant.Row(row, &backend.Tensor{DType: backend.F32, Shape: []int{len(row)}, Data: x.Data}, 0)
		data := make([]byte, len(row)/in*dt.RowBytes(in))
		if !quant.Blocks(data, dt, row) {
			t.Fatalf("%s: cannot write %v", name, dt)
		}
		tensors = append(tensors, checkpoint.GGUFTensor{Name: ggufName(t, name), DType: dt, Shape: x.Shape, Data: data})
	}
	var b bytes.Buffer
	if err := checkpoint.WriteGGUF(&b, metadata, tensors); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// ggufTokens is tiny-gsm's tokenizer as GGUF metadata.
func ggufTokens(t testing.TB) []checkpoint.GGUFField {
	t.Helper()
	var file struct {
		Added []struct {
			ID      int
			Content string
			Special bool
		} `json:"added_tokens"`
		Model struct {
			Vocab  map[string]int
			Merges []any
		}
	}
	var config struct {
		Template string `json:"chat_template"`
	}
	files := tinygsm.Files()
	if err := json.Unmarshal(files["tokenizer.json"], &file); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(files["tokenizer_config.json"], &config); err != nil {
		t.Fatal(err)
	}
	tokens, kinds := make([]string, 4096), make([]int32, 4096)
	for id := range tokens {
		tokens[id], kinds[id] = fmt.Sprintf("[PAD%d]", id), 5
	}
	for token, id := range file.Model.Vocab {
		tokens[id], kinds[id] = token, 1
	}
	for _, a := range file.Added {
		tokens[a.ID], kinds[a.ID] = a.Content, 4
		if a.Special {
			kinds[a.ID] = 3
		}
	}
	var merges []string
	for _, m := range file.Model.Merges {
		if pair, ok := m.([]any); ok {
			m = fmt.Sprintf("%s %s", pair...)
		}
		merges = append(merges, m.(string))
	}
	return []checkpoint.GGUFField{
		{Key: "tokenizer.ggml.model", Value: "gpt2"}, {Key: "tokenizer.ggml.pre", Value: "qwen2"}, {Key: "tokenizer.ggml.tokens", Value: tokens},
		{Key: "tokenizer.ggml.token_type", Value: kinds}, {Key: "tokenizer.ggml.merges", Value: merges},
		{Key: "tokenizer.ggml.eos_token_id", Value: uint32(4094)}, {Key: "tokenizer.ggml.padding_token_id", Value: uint32(4092)},
		{Key: "tokenizer.ggml.mask_token_id", Value: uint32(4095)}, {Key: "tokenizer.chat_template", Value: config.Template},
	}
}

func ggufCheckpoint(t testing.TB, data []byte) *checkpoint.Checkpoint {
	t.Helper()
	c, err := checkpoint.NewGGUF(data)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// relativeNorm is |got − want| / |want| over all rows of logits.
func relativeNorm(got []model.Result, want [][]float64) float64 {
	var diff, norm float64
	for r := range got {
		for i, v := range got[r].Logits {
			d := float64(v) - want[r][i]
			diff += d * d
			norm += want[r][i] * want[r][i]
		}
	}
	return math.Sqrt(diff / norm)
}

// tiny-gsm as a GGUF in each block type gives, bit for bit, the logits of the
// same weights widened to f32, and in bf16 those of the original.
func TestTinyGGUF(t *testing.T) {
	if testing.Short() {
		t.Skip("answers of the whole model: leave -short out")
	}
	src := backendtest.Tiny(t)
	tokens := ids(2, 6)
	run := func(src checkpoint.Source) []model.Result {
		m := open(t, src, cpu.Options{Exact: true, Kernels: "go"})
		return forward(t, m, batch(part{cache(t, m, backend.KVF32), tokens}))
	}
	bf16 := run(src)
	for _, dt := range []backend.DType{backend.BF16, backend.Q8_0, backend.Q4_0, backend.Q4_K, backend.Q6_K} {
		data := makeGGUF(t, src, "qwen3", ggufTokens(t), func(name string, in int) backend.DType {
			if in%dt.BlockSize() != 0 { // 384: as llama.cpp, where blocks of 256 do not fit
				return backend.Q8_0
			}
			return dt
		})
		gguf := ggufCheckpoint(t, data)
		down, _ := gguf.Tensor("model.layers.3.mlp.down_proj.weight")
		if down.DType != dt || fmt.Sprint(down.Shape) != "[384 1024]" {
			t.Fatalf("%v: down_proj is %v %v", dt, down.DType, down.Shape)
		}
		if at := bytes.Index(data, down.Data[:256]); at < 0 || &data[at] != &down.Data[0] {
			t.Errorf("%v: a tensor was copied out of the file", dt)
		}
		got := run(gguf)
		if dt == backend.BF16 {
			sameLogits(t, "gguf in bf16", got, bf16)
			continue
		}
		sameLogits(t, fmt.Sprint("gguf in ", dt), got, run(widen(gguf)))
	}
}

func TestGGUFTokenizer(t *testing.T) {
	src := backendtest.Tiny(t)
	c := ggufCheckpoint(t, makeGGUF(t, src, "qwen3", ggufTokens(t), func(string, int) backend.DType { return backend.Q8_0 }))
	files := tinygsm.Files()
	want, err := tokenizer.New(files["tokenizer.json"], files["tokenizer_config.json"])
	if err != nil {
		t.Fatal(err)
	}
	one, err1 := c.ReadFile("tokenizer.json")
	two, err2 := c.ReadFile("tokenizer_config.json")
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	got, err := tokenizer.New(one, two)
	if err != nil {
		t.Fatal(err)
	}
	chat, err := got.RenderChat(t.Context(), []tokenizer.Message{{Role: "user", Content: "A box holds 12 pens."}}, tokenizer.ChatOptions{AddGenerationPrompt: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{chat, "Maria's 7 boxes  cost\r\n\n 3.50 €, \"naïve\" <tag> <|mask|>x<|im_end|>", "e\u0301 漢字 🙂\t\tend "} {
		a, err1 := got.Encode(text)
		b, err2 := want.Encode(text)
		if err1 != nil || err2 != nil || !slices.Equal(a, b) {
			t.Errorf("%q: %v %v, want %v %v", text, a, err1, b, err2)
		}
	}
	if id, ok := got.EOS(); !ok || id != 4094 || !got.Special(4095) || got.Size() != want.Size() {
		t.Errorf("eos %d, special %v, size %d, want %d", id, got.Special(4095), got.Size(), want.Size())
	}
	if k := c.Config(); k.MaskTokenID != 4095 || !k.TieEmbeddings || k.VocabSize != 4096 || c.Generation().EOSTokenIDs[0] != 4094 {
		t.Errorf("config %+v", *k)
	}
}

func TestGGUFTokenizerRefuses(t *testing.T) {
	src := backendtest.Tiny(t)
	for _, tc := range []struct {
		key  string
		to   any
		want string
	}{
		{"tokenizer.ggml.model", "llama", `tokenizer.ggml.model: found "llama", want gpt2`},
		{"tokenizer.ggml.pre", "llama-bpe", `tokenizer.ggml.pre: found "llama-bpe", want qwen2 or qwen35`},
		{"tokenizer.ggml.merges", uint32(1), "tokenizer.ggml.merges: missing"},
		{"tokenizer.ggml.tokens", []string{"a"}, "token_type: 4096 numbers, want one for each of 1 tokens"},
		{"tokenizer.ggml.token_type", []int32{1}, "token_type: 1 numbers, want one for each of 4096"},
		{"tokenizer.ggml.token_type", slices.Repeat([]int32{6}, 4096), "token_type[0]: found 6"},
		{"tokenizer.ggml.tokens", slices.Repeat([]string{"\xff"}, 4096), "want UTF-8"},
	} {
		fields := ggufTokens(t)
		for i := range fields {
			if fields[i].Key == tc.key {
				fields[i].Value = tc.to
			}
		}
		shrunk := onlyEmbedding{src}
		c := ggufCheckpoint(t, makeGGUF(t, shrunk, "qwen3", fields, func(string, int) backend.DType { return backend.Q4_0 }))
		if _, err := c.ReadFile("tokenizer.json"); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.key, err, tc.want)
		}
	}
}

type onlyEmbedding struct{ checkpoint.Source }

func (onlyEmbedding) Names() []string { return []string{"model.embed_tokens.weight"} }

// Every block type in every place, embedding and head included, and qwen2 with
// its biases: rows of 256 fit all of them.
func TestGGUFBlocksEverywhere(t *testing.T) {
	config := &checkpoint.Config{Architecture: "qwen2", HiddenSize: 256, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 64, IntermediateSize: 512, VocabSize: 97,
		RMSNormEps: 1e-6, MaxPositions: 1024, MaskTokenID: -1, Rope: rope.Config{HeadDim: 64, Theta: 10000}}
	src := synthetic.RandomSource(config, backend.BF16, 3)
	types := []backend.DType{backend.Q4_K, backend.Q6_K, backend.Q8_0, backend.Q4_0, backend.F16, backend.F32}
	next := 0
	gguf := ggufCheckpoint(t, makeGGUF(t, src, "qwen2", nil, func(string, int) backend.DType { next++; return types[next%len(types)] }))
	in := checkpoint.Inspect(gguf)
	if len(in.DTypes) != len(types) || !in.QKVBias || in.QKNorm {
		t.Errorf("inspection %+v", in)
	}
	tokens := ids(4, 12)
	want := reference(t, widen(gguf), tokens, positions(len(tokens)))
	for _, kernels := range cpu.KernelTables() {
		m := open(t, gguf, cpu.Options{Exact: true, Kernels: kernels})
		kv := cache(t, m, backend.KVF32)
		if e := relativeNorm(forward(t, m, batch(part{kv, tokens})), want); !(e < 1e-5) {
			t.Errorf("%s: relative norm %.3g from the float64 forward, want at most 1e-5", kernels, e)
		}
	}
}
