package architecture

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"windrow/backend"
)

// hybrid is a table of what dense models have not: layers of two kinds, experts
// apart and stacked, tensors without .weight, layouts that differ in GGUF files,
// and matrices that no policy quantises.
func hybrid() *Architecture {
	const experts = 12
	count := func(n int) Dim { return func(*Config) int { return n } }
	full := func(_ *Config, layer int) bool { return layer%3 == 2 }
	squeezed := func(_ *Config, t backend.Tensor) (backend.Tensor, error) {
		t.Shape = []int{t.Shape[0], 1, t.Shape[1]}
		return t, nil
	}
	a := dense(Architecture{Name: "hybrid", Class: "HybridForCausalLM", GGUF: "hybrid"}, Required, Optional)
	attention := a.Layers[0]
	attention.In = full
	attention.Parameters[1].Shape = []Dim{func(c *Config) int { return 2 * queries(c) }, hidden} // with a gate
	a.Layers = []Part{
		attention,
		{Name: "delta", In: func(c *Config, layer int) bool { return !full(c, layer) }, Parameters: []Parameter{
			norm(AttentionNorm, "input_layernorm", "attn_norm", hidden, Required),
			{Role: "qkv", Class: ClassProjection, Name: "linear_attn.in_proj_qkv.weight", GGUF: "attn_qkv.weight", Shape: []Dim{count(96), hidden}, Need: Optional},
			{Role: "qkv", Class: ClassProjection, Name: "linear_attn.in_proj_qkvz.weight", Shape: []Dim{count(128), hidden}, Need: Optional}, // with z
			{Role: "conv", Class: ClassOther, Name: "linear_attn.conv1d.weight", GGUF: "ssm_conv1d.weight", Shape: []Dim{count(96), count(1), count(4)}, Restore: squeezed},
			{Role: "decay", Class: ClassOther, Name: "linear_attn.A_log", GGUF: "ssm_a", Shape: []Dim{count(8)}},
			{Role: "time step", Class: ClassOther, Name: "linear_attn.dt_bias", GGUF: "ssm_dt.bias", Shape: []Dim{count(8)}},
		}},
		{Name: "experts", Parameters: []Parameter{
			norm(MLPNorm, "post_attention_layernorm", "post_attention_norm", hidden, Required),
			{Role: "router", Class: ClassOther, Name: "mlp.gate.weight", GGUF: "ffn_gate_inp.weight", Shape: []Dim{count(experts), hidden}},
			{Role: Gate, Class: ClassProjection, Name: "mlp.experts.#.gate_proj.weight", Shape: []Dim{inner, hidden}, Need: Optional, Read: ReadSome, Each: count(experts)},
			{Role: Gate, Class: ClassProjection, Name: "mlp.switch_mlp.gate_proj.weight", GGUF: "ffn_gate_exps.weight", Shape: []Dim{count(experts), inner, hidden}, Need: Optional, Read: ReadSome},
			{Role: "gate and up", Class: ClassProjection, Name: "mlp.experts.gate_up_proj", Shape: []Dim{count(experts), count(144), hidden}, Need: Optional, Read: ReadSome},
		}},
	}
	return a
}

// The tables can say what mixtures of experts and hybrid models need.
func TestHybridTable(t *testing.T) {
	a, c := hybrid(), small("hybrid")
	for _, fault := range faults(a, c) {
		t.Error(fault)
	}
	for _, tc := range []struct{ name, want string }{
		{"model.layers.2.self_attn.q_proj.weight", "query [192 40] layer 2 expert -1 gguf blk.2.attn_q.weight"},
		{"model.layers.0.self_attn.q_proj.weight", ""},
		{"model.layers.1.linear_attn.A_log", "decay [8] layer 1 expert -1 gguf blk.1.ssm_a"},
		{"model.layers.2.linear_attn.A_log", ""},
		{"model.layers.0.linear_attn.conv1d.weight", "conv [96 1 4] layer 0 expert -1 gguf blk.0.ssm_conv1d.weight"},
		{"model.layers.0.linear_attn.in_proj_qkvz.weight", "qkv [128 40] layer 0 expert -1 gguf "},
		{"model.layers.0.mlp.experts.0.gate_proj.weight", "gate [72 40] layer 0 expert 0 gguf "},
		{"model.layers.2.mlp.experts.11.gate_proj.weight", "gate [72 40] layer 2 expert 11 gguf "},
		{"model.layers.2.mlp.experts.12.gate_proj.weight", ""},
		{"model.layers.2.mlp.experts.01.gate_proj.weight", ""},
		{"model.layers.2.mlp.experts.#.gate_proj.weight", ""},
		{"model.layers.2.mlp.experts.gate_proj.weight", ""},
		{"model.layers.2.mlp.experts..gate_proj.weight", ""},
		{"model.layers.2.mlp.switch_mlp.gate_proj.weight", "gate [12 72 40] layer 2 expert -1 gguf blk.2.ffn_gate_exps.weight"},
		{"model.layers.1.mlp.experts.gate_up_proj", "gate and up [12 144 40] layer 1 expert -1 gguf "},
		{"model.layers.1.mlp.gate_proj.weight", ""},
	} {
		got := ""
		if p, ok := a.Find(c, tc.name); ok {
			got = fmt.Sprintf("%s %v layer %d expert %d gguf %s", p.Role, p.Shape, p.Layer, p.Expert, p.GGUF)
			if p.Name != tc.name {
				t.Errorf("%s was found as %s", tc.name, p.Name)
			}
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
	// 2 layers of delta with 6 tensors and 1 of attention with 11, each with 16
	// of its experts.
	if n, want := len(a.Tensors(c)), 3+2*6+11+3*(4+12); n != want {
		t.Errorf("%d tensors, want %d", n, want)
	}
	if list := a.Role(c, 1, Gate, ClassProjection); len(list) != 13 || list[11].Name != "model.layers.1.mlp.experts.11.gate_proj.weight" || list[12].Expert != -1 {
		t.Errorf("gates %v", list)
	}
	for _, p := range a.Tensors(c) {
		if name := p.Name; strings.Contains(name, "linear_attn.A_log") || strings.Contains(name, "conv1d") || strings.HasSuffix(name, "mlp.gate.weight") {
			if p.Class.Quantizable() {
				t.Errorf("%s may be quantised", name)
			}
		}
		chosen := p.Role == Embedding || strings.Contains(p.Name, "experts") || strings.Contains(p.Name, "switch_mlp")
		if p.ReadWhole(c) == chosen {
			t.Errorf("%s: read whole %v", p.Name, p.ReadWhole(c))
		}
		if p.Need.Invented(c) && p.Need == Optional {
			t.Errorf("%s is optional and invented", p.Name)
		}
	}
	row, name, ok := a.FromGGUF(c, "blk.1.ssm_conv1d.weight")
	if !ok || name != "model.layers.1.linear_attn.conv1d.weight" {
		t.Fatalf("ssm_conv1d is %s, %v", name, ok)
	}
	restored, err := row.Restore(c, backend.Tensor{Shape: []int{96, 4}})
	if p, _ := a.Find(c, name); err != nil || !slices.Equal(restored.Shape, p.Shape) {
		t.Errorf("%s: restored to %v, %v, want %v", name, restored.Shape, err, p.Shape)
	}
}
