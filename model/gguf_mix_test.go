package model_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/cpu"
	"windrow/model"
	"windrow/quant"
)

// mix is which types llama-quantize gave the matrices of a model: one to most of
// them, others to some.
type mix struct {
	Most string
	But  map[string]string
}

func (m mix) dtype(t testing.TB, tensor string) backend.DType {
	t.Helper()
	name := m.Most
	if other, ok := m.But[tensor]; ok {
		name = other
	}
	for _, d := range backend.DTypes() {
		if d.String() == strings.ToLower(name) {
			return d
		}
	}
	t.Fatalf("%s: type %q", tensor, name)
	return 0
}

// The models whose mixes are in testdata/llama.cpp/mixes.json: of rows of whole
// blocks of 256, and of others, where K-quants fall back on blocks of 32.
var mixShapes = map[string]struct{ hidden, mlp, heads, kvHeads, dim int }{
	"wide": {256, 512, 2, 1, 128}, "odd": {224, 608, 4, 2, 32},
}

const mixLayers, mixVocabulary = 8, 288

// mixGGUF is a file of random weights in the types of a mix. Types repeat through
// the layers but for first and last ones, so some of them do.
func mixGGUF(t testing.TB, shape string, m mix, layers []int) []byte {
	t.Helper()
	s := mixShapes[shape]
	r := rand.New(rand.NewPCG(8, 8))
	var tensors []checkpoint.GGUFTensor
	add := func(name, typesOf string, out, in int) {
		w := make([]float32, max(out, 1)*in)
		for i := range w {
			w[i] = float32(r.NormFloat64() / math.Sqrt(float64(in)))
		}
		if out == 0 {
			for i := range w {
				w[i] = 1 + w[i]
			}
			x := quant.Encode(name, backend.F32, 1, in, 0, w)
			tensors = append(tensors, checkpoint.GGUFTensor{Name: name, DType: x.DType, Shape: []int{in}, Data: x.Data})
			return
		}
		x := quant.Encode(name, m.dtype(t, typesOf), out, in, 0, w)
		tensors = append(tensors, checkpoint.GGUFTensor{Name: name, DType: x.DType, Shape: x.Shape, Data: x.Data})
	}
	add("token_embd.weight", "token_embd.weight", mixVocabulary, s.hidden)
	for i, from := range layers {
		matrix := func(name string, out, in int) {
			add(fmt.Sprintf("blk.%d.%s.weight", i, name), fmt.Sprintf("blk.%d.%s.weight", from, name), out, in)
		}
		matrix("attn_norm", 0, s.hidden)
		matrix("attn_q", s.heads*s.dim, s.hidden)
		matrix("attn_k", s.kvHeads*s.dim, s.hidden)
		matrix("attn_v", s.kvHeads*s.dim, s.hidden)
		matrix("attn_output", s.hidden, s.heads*s.dim)
		matrix("attn_q_norm", 0, s.dim)
		matrix("attn_k_norm", 0, s.dim)
		matrix("ffn_norm", 0, s.hidden)
		matrix("ffn_gate", s.mlp, s.hidden)
		matrix("ffn_up", s.mlp, s.hidden)
		matrix("ffn_down", s.hidden, s.mlp)
	}
	add("output_norm.weight", "", 0, s.hidden)
	add("output.weight", "output.weight", mixVocabulary, s.hidden)
	metadata := []checkpoint.GGUFField{
		{Key: "general.architecture", Value: "qwen3"}, {Key: "qwen3.block_count", Value: uint32(len(layers))},
		{Key: "qwen3.context_length", Value: uint32(1024)}, {Key: "qwen3.embedding_length", Value: uint32(s.hidden)},
		{Key: "qwen3.feed_forward_length", Value: uint32(s.mlp)}, {Key: "qwen3.attention.head_count", Value: uint32(s.heads)},
		{Key: "qwen3.attention.head_count_kv", Value: uint32(s.kvHeads)}, {Key: "qwen3.attention.key_length", Value: uint32(s.dim)},
		{Key: "qwen3.rope.freq_base", Value: float32(1e6)}, {Key: "qwen3.attention.layer_norm_rms_epsilon", Value: float32(1e-6)},
	}
	var b bytes.Buffer
	if err := checkpoint.WriteGGUF(&b, metadata, tensors); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func readMixes(t testing.TB) (mixes map[string]map[string]mix) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(llamaFolder, "mixes.json"))
	if err == nil {
		err = json.Unmarshal(data, &mixes)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(mixes["wide"]) != 16 || len(mixes["odd"]) != 17 {
		t.Fatalf("%d and %d mixes", len(mixes["wide"]), len(mixes["odd"]))
	}
	return mixes
}

// Every mix that llama-quantize makes is inspected and run: with exact arithmetic
// as its widened weights, bit for bit; else within what rounding activations to 8
// bits costs, and with the same bits however many rows ride along.
func TestMixes(t *testing.T) {
	if testing.Short() {
		t.Log("left out: mixes other than Q4_K's: leave -short out")
	}
	for shape, mixes := range readMixes(t) {
		for name, m := range mixes {
			if testing.Short() && !strings.HasPrefix(name, "Q4_K") {
				continue
			}
			t.Run(shape+" "+name, func(t *testing.T) {
				c, err := checkpoint.NewGGUF(mixGGUF(t, shape, m, []int{0, 3, mixLayers - 1}))
				if err != nil {
					t.Fatal(err)
				}
				types := map[string]bool{"f32": true}
				for _, n := range c.Names() {
					x, _ := c.Tensor(n)
					types[x.DType.String()] = true
				}
				in := checkpoint.Inspect(c)
				if len(in.DTypes) != len(types) || in.BitsPerWeight < 2 || in.BitsPerWeight > 10 {
					t.Errorf("inspect: %d types of %v, %.2f bits a weight", len(in.DTypes), types, in.BitsPerWeight)
				}
				tokens := ids(3, 20)
				run := func(src checkpoint.Source, exact bool, parts ...int) (results []model.Result) {
					m := open(t, src, cpu.Options{Threads: 2, Exact: exact})
					kv, at := cache(t, m, backend.KVF32), 0
					for _, n := range parts {
						results = append(results, forward(t, m, batch(part{kv, tokens[at : at+n]}))...)
						commit(t, kv, n)
						at += n
					}
					return results
				}
				wide := run(widen(c), true, len(tokens))
				sameLogits(t, "exact", run(c, true, len(tokens)), wide)
				fast := run(c, false, len(tokens))
				sameLogits(t, "in parts", run(c, false, 11, 1, 1, 2, 5), fast)
				var diff, norm float64
				for i := range wide {
					for j, v := range wide[i].Logits {
						d := float64(fast[i].Logits[j]) - float64(v)
						diff, norm = diff+d*d, norm+float64(v)*float64(v)
					}
				}
				if e := math.Sqrt(diff / norm); !(e <= 5e-2) {
					t.Errorf("logits %.3g from those of widened weights, want at most 0.05", e)
				}
			})
		}
	}
}

// What a model takes on a device counts types without kernels there as what they
// become: Q5_K as bf16 or, exact, f32; Q3_K as Q6_K.
func TestDeviceBytesOfConvertedTypes(t *testing.T) {
	for _, tc := range []struct {
		most           string
		rounded, exact float64 // bits a weight of the projections
	}{{"Q4_K", 4.5, 4.5}, {"Q5_K", 16, 32}, {"Q3_K", 6.5625, 6.5625}, {"Q2_K", 16, 32}} {
		c, err := checkpoint.NewGGUF(mixGGUF(t, "wide", mix{Most: tc.most}, []int{0}))
		if err != nil {
			t.Fatal(err)
		}
		matrices, vectors := 0, 0
		for _, name := range c.Names() {
			if x, _ := c.Tensor(name); len(x.Shape) == 2 {
				matrices += x.Elements()
			} else {
				vectors += x.Bytes()
			}
		}
		for exact, bits := range map[bool]float64{false: tc.rounded, true: tc.exact} {
			if got, want := model.DeviceBytes(c, 1, exact), int64(bits*float64(matrices)/8)+int64(vectors); got != want {
				t.Errorf("%s, exact %v: %d bytes, want %d", tc.most, exact, got, want)
			}
		}
	}
}
