package model_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/cpu"
	"windrow/model"
	"windrow/rope"
	"windrow/synthetic"
)

// edited is a source some of whose tensors are others, or gone (no shape).
type edited struct {
	checkpoint.Source
	shapes map[string][]int
}

func (e edited) Names() []string {
	names := slices.DeleteFunc(slices.Clone(e.Source.Names()), func(name string) bool { _, ok := e.shapes[name]; return ok })
	for name, shape := range e.shapes {
		if shape != nil {
			names = append(names, name)
		}
	}
	return names
}

func (e edited) Tensor(name string) (backend.Tensor, bool) {
	shape, ok := e.shapes[name]
	if !ok {
		return e.Source.Tensor(name)
	}
	t := backend.Tensor{Name: name, DType: backend.F32, Shape: shape}
	t.Data = make([]byte, 4*t.Elements())
	return t, shape != nil
}

func small(architecture string) *checkpoint.Config {
	return &checkpoint.Config{Architecture: architecture, HiddenSize: 64, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 16, IntermediateSize: 96, VocabSize: 80,
		RMSNormEps: 1e-6, MaxPositions: 256, MaskTokenID: -1, Rope: rope.Config{HeadDim: 16, Theta: 10000}}
}

// spy is a CPU that notes what it is given, as one of several devices.
type spy struct {
	backend.Backend
	devices int
	given   *[]backend.Tensor
}

func (s spy) Features() backend.Features {
	f := s.Backend.Features()
	f.Devices = s.devices
	return f
}

func (s spy) Matrix(t backend.Tensor) (backend.Matrix, error) {
	*s.given = append(*s.given, t)
	return s.Backend.Matrix(t)
}

func (s spy) Vector(t backend.Tensor) (backend.Vector, error) {
	*s.given = append(*s.given, t)
	return s.Backend.Vector(t)
}

func spying(t *testing.T, devices int) spy {
	t.Helper()
	b, err := cpu.New(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return spy{b, devices, &[]backend.Tensor{}}
}

func TestLoadRefuses(t *testing.T) {
	type shapes = map[string][]int
	for _, tc := range []struct {
		architecture string
		shapes       shapes
		want         string
	}{
		{"qwen3", nil, ""},
		{"qwen2", nil, ""},
		{"wedlm", nil, ""},
		{"llama", nil, `unknown architecture "llama": want qwen3, qwen2, wedlm, qwen3_moe, qwen3_next, qwen3_5_text or qwen3_5_moe_text (text models; no images)`},
		{"qwen3", shapes{"model.embed_tokens.weight": nil}, "tensor model.embed_tokens.weight is missing"},
		{"qwen3", shapes{"model.embed_tokens.weight": {81, 64}}, "tensor model.embed_tokens.weight: shape [81 64], the config says [80 64]"},
		{"qwen3", shapes{"model.layers.1.self_attn.k_proj.weight": nil}, "tensor model.layers.1.self_attn.k_proj.weight is missing"},
		{"qwen3", shapes{"model.layers.1.self_attn.k_proj.weight": {64, 64}}, "tensor model.layers.1.self_attn.k_proj.weight: shape [64 64], the config says [32 64]"},
		{"qwen3", shapes{"model.layers.0.mlp.down_proj.weight": {64, 96, 1}}, "tensor model.layers.0.mlp.down_proj.weight: shape [64 96 1], the config says [64 96]"},
		{"qwen3", shapes{"model.layers.0.input_layernorm.weight": nil}, "tensor model.layers.0.input_layernorm.weight is missing"},
		{"qwen3", shapes{"model.norm.weight": {65}}, "tensor model.norm.weight: shape [65], the config says [64]"},
		{"qwen3", shapes{"lm_head.weight": nil}, "tensor lm_head.weight is missing and tie_word_embeddings is false"},
		{"qwen3", shapes{"model.norm.weight": nil, "lm_head.weight": nil}, "tensor model.norm.weight is missing"},
		{"qwen3", shapes{"model.layers.1.self_attn.q_norm.weight": nil}, "layer 1: has only one of q_norm and k_norm"},
		{"wedlm", shapes{"model.layers.1.self_attn.k_norm.weight": nil}, "layer 1: has only one of q_norm and k_norm"},
		{"qwen2", shapes{"model.layers.0.self_attn.q_norm.weight": {16}}, "layer 0: has only one of q_norm and k_norm"},
		{"qwen3", shapes{"model.layers.1.self_attn.q_norm.weight": nil, "model.layers.1.self_attn.k_norm.weight": nil}, "layer 1: q_norm and k_norm are missing, which qwen3 has"},
		{"qwen3", shapes{"model.layers.0.self_attn.q_norm.weight": nil, "model.layers.0.self_attn.k_norm.weight": nil, "model.layers.0.mlp.up_proj.weight": nil}, "layer 0: q_norm and k_norm are missing, which qwen3 has"},
		{"wedlm", shapes{"model.layers.1.self_attn.q_norm.weight": nil, "model.layers.1.self_attn.k_norm.weight": nil}, ""},
		{"qwen2", shapes{"model.layers.0.self_attn.q_norm.weight": {16}, "model.layers.0.self_attn.k_norm.weight": {16}}, ""},
		{"qwen2", shapes{"model.layers.1.self_attn.v_proj.bias": nil}, ""},
		{"qwen3", shapes{"model.layers.1.self_attn.o_proj.bias": {64}, "model.layers.0.mlp.gate_proj.bias": {96}}, ""},
		{"qwen3", shapes{"model.layers.1.self_attn.o_proj.bias": {63}}, "tensor model.layers.1.self_attn.o_proj.bias: shape [63], the config says [64]"},
		{"qwen3", shapes{"model.layers.0.mlp.experts.7.gate_proj.weight": {96, 64}}, `tensor "model.layers.0.mlp.experts.7.gate_proj.weight" is no part of the model that the config describes`},
		{"qwen3", shapes{"model.layers.2.mlp.up_proj.weight": {1, 1}, "score.weight": {2, 64}, "model.layers.2.mlp.up_proj.weight_scale": {1}}, `tensor "model.layers.2.mlp.up_proj.weight" is no part of the model that the config describes`},
	} {
		src := edited{synthetic.RandomSource(small(tc.architecture), backend.F32, 1), tc.shapes}
		_, err := model.Load(spying(t, 1), src)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || err.Error() != tc.want) {
			t.Errorf("%s, %v: %v, want %q", tc.architecture, tc.shapes, err, tc.want)
		}
		if checked := model.Check(src); fmt.Sprint(checked) != fmt.Sprint(err) {
			t.Errorf("%s, %v: loaded %v, checked %v", tc.architecture, tc.shapes, err, checked)
		}
	}
}

// A backend is given each tensor that the table has, with its split; what the
// table does not know is neither given to it, nor cut, nor counted as read.
func TestUnknownTensors(t *testing.T) {
	config := small("qwen3")
	plain := synthetic.RandomSource(config, backend.F32, 1)
	b := spying(t, 2)
	m, err := model.Load(b, plain)
	if err != nil {
		t.Fatal(err)
	}
	if len(*b.given) != len(plain.Names()) {
		t.Errorf("%d tensors were given, of %d", len(*b.given), len(plain.Names()))
	}
	for _, x := range *b.given {
		want := backend.SplitNone
		for ending, split := range map[string]backend.Split{"q_proj.weight": backend.SplitOutputs, "k_proj.weight": backend.SplitOutputs, "v_proj.weight": backend.SplitOutputs,
			"gate_proj.weight": backend.SplitOutputs, "up_proj.weight": backend.SplitOutputs, "lm_head.weight": backend.SplitOutputs,
			"o_proj.weight": backend.SplitInputs, "down_proj.weight": backend.SplitInputs} {
			if strings.HasSuffix(x.Name, ending) {
				want = split
			}
		}
		if x.Split != want {
			t.Errorf("%s was given with split %d, want %d", x.Name, x.Split, want)
		}
	}
	unknown := map[string][]int{
		"model.other_layers.0.mlp.experts.7.gate_proj.weight": {96, 64}, "score.down_proj.weight": {64, 95}, // 95 cannot be halved
		"q_proj.weight": {64, 64}, "mtp.fc.weight": {64, 128}, "model.layers.0.self_attn.rotary_emb.inv_freq": {8},
	}
	src := edited{plain, unknown}
	b = spying(t, 2)
	more, err := model.Load(b, src)
	if err != nil {
		t.Fatal(err)
	}
	var extra int64
	for name := range unknown {
		x, _ := src.Tensor(name)
		extra += int64(x.Bytes())
		if slices.ContainsFunc(*b.given, func(x backend.Tensor) bool { return x.Name == name }) {
			t.Errorf("%s was given to the backend", name)
		}
	}
	for n := range 3 {
		n++
		if got, want := model.DeviceBytes(src, n, true), model.DeviceBytes(plain, n, true)+extra; got != want {
			t.Errorf("%d bytes on each of %d devices, want %d: unknown tensors are whole", got, n, want)
		}
	}
	embed, _ := plain.Tensor("model.embed_tokens.weight")
	all := checkpoint.Inspect(plain).Bytes
	var norms int64 // each device reads them all
	for _, name := range plain.Names() {
		if x, _ := plain.Tensor(name); strings.Contains(name, "norm") {
			norms += int64(x.Bytes())
		}
	}
	if got, want := more.WeightBytes(src), all-int64(embed.Bytes())+norms; got != want || m.WeightBytes(plain) != want {
		t.Errorf("a forward reads %d bytes, and %d without what is unknown, want %d", got, m.WeightBytes(plain), want)
	}
}

// TestGivenShares: of mixtures and hybrids in every form of files a backend is given
// matrices and vectors that two devices can share as their splits say.
func TestGivenShares(t *testing.T) {
	for _, name := range []string{"qwen3-moe-tiny", "qwen3-next-tiny", "qwen3-5-text-tiny", "qwen3-5-moe-tiny", "qwen3-5-drafts"} {
		b := spying(t, 2)
		if _, err := model.Load(b, goldenForm(t, name).open(t)); err != nil {
			t.Fatal(err)
		}
		cut := 0
		for _, x := range *b.given {
			var err error
			switch {
			case x.Split == backend.SplitInputs:
				err = x.CheckInputs(2)
			case x.Split == backend.SplitOutputs && x.Shape[0] > 1:
				err = x.CheckOutputs(2)
			default:
				continue
			}
			if cut++; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if cut < 20 {
			t.Errorf("%s: %d tensors were cut", name, cut)
		}
	}
}

// TestCopiedHeads: over more devices than KV heads a backend is given keys and values that
// several have, which are counted on each of them.
func TestCopiedHeads(t *testing.T) {
	c := small("qwen2") // with biases
	src := synthetic.RandomSource(c, backend.F32, 1)
	copiedHeads(t, c, src)
	copiedHeads(t, c, lazy{src})
}

// lazy is a source whose tensors are in another form until they are made.
type lazy struct{ checkpoint.Source }

func (s lazy) Tensor(name string) (backend.Tensor, bool) {
	t, ok := s.Source.Tensor(name)
	y := t
	y.Data, y.Make = nil, func(context.Context) (backend.Tensor, error) { return t, nil }
	return y, ok
}

func copiedHeads(t *testing.T, c *checkpoint.Config, src checkpoint.Source) {
	t.Helper()
	b := spying(t, 4)
	m, err := model.Load(b, src)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var weights, read int64 // on each
	for _, x := range *b.given {
		copied := strings.Contains(x.Name, "k_proj") || strings.Contains(x.Name, "v_proj")
		if want := map[bool]int{true: 2, false: 1}[copied]; x.Copies(4) != want {
			t.Errorf("%s is given in %d copies, want %d", x.Name, x.Copies(4), want)
		}
		parts := 4
		switch {
		case copied:
			parts = 2
		case x.Split == backend.SplitNone:
			parts = 1
		}
		if x.Split != backend.SplitNone && x.Split != backend.SplitInputs {
			if err := x.CheckOutputs(4); err != nil {
				t.Error(err)
			}
		}
		if weights += int64(x.Bytes() / parts); !strings.Contains(x.Name, "embed_tokens") {
			read += int64(x.Bytes() / parts)
		}
	}
	kv := c.KVBytesPerToken(backend.KVBF16)
	if got, want := model.ShareOf(src, 4), (model.Share{GPUs: 4, WeightBytes: weights, ReadBytes: read, KVBytesPerToken: kv / 2}); got != want {
		t.Errorf("each of four has %+v, want %+v", got, want)
	}
	if got := model.DeviceBytes(src, 4, true); got != weights {
		t.Errorf("%d bytes on each of four, want %d", got, weights)
	}
	if got := m.KVBytesPerToken(backend.KVBF16); got != 2*kv || m.KVCopies() != 2 {
		t.Errorf("a token takes %d bytes of all four, in %d copies, want %d in 2", got, m.KVCopies(), 2*kv)
	}
}

// A tied model reads its embedding, and no head that is stored beside it.
func TestWeightBytesTied(t *testing.T) {
	config := small("qwen3")
	config.TieEmbeddings = true
	plain := synthetic.RandomSource(config, backend.F32, 1)
	src := edited{plain, map[string][]int{"lm_head.weight": {80, 64}}}
	b := spying(t, 1)
	m, err := model.Load(b, src)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := m.WeightBytes(src), checkpoint.Inspect(plain).Bytes; got != want {
		t.Errorf("a forward reads %d bytes, want %d", got, want)
	}
	if names := fmt.Sprint(*b.given); strings.Contains(names, "lm_head") {
		t.Error("a head was given to the backend beside a tied embedding")
	}
}

func TestDevicesRefused(t *testing.T) {
	for _, tc := range []struct {
		devices int
		edit    func(*checkpoint.Config)
		want    string
	}{
		{2, func(*checkpoint.Config) {}, ""},
		{4, func(*checkpoint.Config) {}, ""},
		{4, func(c *checkpoint.Config) { c.KVHeads = 1 }, ""},
		{4, func(c *checkpoint.Config) { c.Heads = 6 }, "4 GPUs cannot share this model: 6 heads do not divide by 4; it runs on 1, 2, 6"},
		{6, func(c *checkpoint.Config) { c.Heads, c.KVHeads = 12, 4 }, "6 GPUs cannot share this model: 4 KV heads do not divide by 6; it runs on 1, 2, 4, 12"},
		{3, func(*checkpoint.Config) {}, "3 GPUs cannot share this model: 2 KV heads do not divide by 3; it runs on 1, 2, 4"},
		{3, func(c *checkpoint.Config) { c.KVHeads, c.Heads = 3, 3; c.IntermediateSize = 64 }, "3 GPUs cannot share this model: 64 inner columns do not divide by 3; it runs on 1"},
	} {
		c := small("qwen3")
		tc.edit(c)
		_, err := model.Load(spying(t, tc.devices), synthetic.RandomSource(c, backend.F32, 1))
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || err.Error() != tc.want) {
			t.Errorf("%d devices: %v, want %q", tc.devices, err, tc.want)
		}
	}
}
