package model_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/conformance/backendtest"
	"windrow/convert"
	"windrow/cpu"
	"windrow/model"
	"windrow/tokenizer"
)

// tiny-gsm quantised and read back from disk gives the logits of the naive
// float64 forward on the same weights; how far they are from those in bf16 is
// compared with what was measured.
func TestTinyQuantized(t *testing.T) {
	if testing.Short() {
		t.Skip("answers of the whole model: leave -short out")
	}
	src := backendtest.Tiny(t).(*checkpoint.Checkpoint)
	tokens := ids(2, 3)
	exact := reference(t, widen(src), tokens, positions(len(tokens)))
	for _, tc := range []struct {
		policy convert.Policy
		bits   float64 // a weight, of the whole model
		off    float64 // relative norm of the logits against bf16, with room
	}{
		{convert.DefaultPolicy(), 5.783, 0.2},
		{convert.Policy{Bits: 4, Group: 64}, 4.506, 0.35},
		{convert.Policy{Bits: 8, Group: 32, Selective: true}, 9.781, 0.015},
	} {
		dst := filepath.Join(t.TempDir(), "q")
		report, err := convert.Quantize(context.Background(), src, dst, tc.policy, nil)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(report.BitsAfter-tc.bits) > 0.001 {
			t.Errorf("%s: %.3f bits a weight, want %.3f", tc.policy.Name(), report.BitsAfter, tc.bits)
		}
		q, err := checkpoint.Open(dst)
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		embed, _ := q.Tensor("model.embed_tokens.weight")
		down, _ := q.Tensor("model.layers.7.mlp.down_proj.weight")
		if embed.DType.Quantized() == tc.policy.Selective || !down.DType.Affine() {
			t.Errorf("%s: embedding in %v, down_proj in %v", tc.policy.Name(), embed.DType, down.DType)
		}
		m := open(t, q, cpu.Options{Exact: true})
		got := forward(t, m, batch(part{cache(t, m, backend.KVF32), tokens}))
		if e := relativeNorm(got, reference(t, widen(q), tokens, positions(len(tokens)))); !(e < 1e-5) {
			t.Errorf("%s: relative norm %.3g from the float64 forward, want at most 1e-5", tc.policy.Name(), e)
		}
		e := relativeNorm(got, exact)
		t.Logf("%s: relative norm %.3g from bf16, %.3f bits a weight", tc.policy.Name(), e, report.BitsAfter)
		if !(e < tc.off) {
			t.Errorf("%s: relative norm %.3g from bf16, want at most %g", tc.policy.Name(), e, tc.off)
		}
		if want, _ := src.File("tokenizer.json"); !bytes.Equal(want, mustFile(t, q, "tokenizer.json")) {
			t.Error("tokenizer.json was not copied")
		}
	}
}

// A GGUF of floats becomes a folder with all that a model needs.
func TestQuantizeGGUF(t *testing.T) {
	src := backendtest.Tiny(t)
	gguf := ggufCheckpoint(t, makeGGUF(t, src, "qwen3", ggufTokens(t), func(string, int) backend.DType { return backend.BF16 }))
	dst := filepath.Join(t.TempDir(), "q")
	if _, err := convert.Quantize(context.Background(), gguf, dst, convert.DefaultPolicy(), nil); err != nil {
		t.Fatal(err)
	}
	q, err := checkpoint.Open(dst)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	want, _, err := convert.Quantized(context.Background(), src, convert.DefaultPolicy())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range src.Names() {
		a, _ := q.Tensor(name)
		b, _ := want.Tensor(name)
		if a.DType != b.DType || !bytes.Equal(a.Data, b.Data) || !bytes.Equal(a.Scales, b.Scales) {
			t.Errorf("%s: %v, want %v of the same bytes", name, a.DType, b.DType)
		}
	}
	if _, err := tokenizer.New(mustFile(t, q, "tokenizer.json"), mustFile(t, q, "tokenizer_config.json")); err != nil {
		t.Error(err)
	}
	if q.Config().MaskTokenID != 4095 || q.Generation().EOSTokenIDs[0] != 4094 {
		t.Errorf("config %+v", *q.Config())
	}
}

func mustFile(t testing.TB, c *checkpoint.Checkpoint, name string) []byte {
	t.Helper()
	data, err := c.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A row's bits do not depend on what rides along, whatever the format.
func TestQuantizedSequencesTogether(t *testing.T) {
	for _, p := range []convert.Policy{{Bits: 4, Group: 64}, {Bits: 8, Group: 32, Selective: true}} {
		src, _, err := convert.Quantized(context.Background(), backendtest.Tiny(t), p)
		if err != nil {
			t.Fatal(err)
		}
		m := open(t, src, cpu.Options{})
		one, many := cache(t, m, backend.KVBF16), cache(t, m, backend.KVBF16)
		tokens := ids(5, 6)
		var want []model.Result
		for i := range tokens {
			want = append(want, forward(t, m, batch(part{one, tokens[i : i+1]}))...)
			commit(t, one, 1)
		}
		sameLogits(t, fmt.Sprint(p.Name(), " together"), forward(t, m, batch(part{many, tokens})), want)
	}
}
