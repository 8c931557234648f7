package architecture

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"windrow/backend"
)

// mixed is a config of a hybrid that has each part: three layers, the second of them
// with attention and dense where the architecture has dense layers beside experts, and a
// head for drafts.
func mixed(a *Architecture) *Config {
	c := small(a.Name)
	c.AttentionGate, c.MTPLayers = true, 1
	c.Delta = &DeltaNet{KeyHeads: 2, ValueHeads: 6, KeyDim: 8, ValueDim: 12, Conv: 4, Layers: []bool{true, false, true}}
	if a.Mixture() {
		c.Experts = &Experts{Count: 4, PerToken: 2, InnerSize: 24, SharedInnerSize: 28, Step: 1}
		if !a.Defaults.EachHas {
			c.Experts.DenseLayers = []int{1}
		}
	}
	return c
}

// wholeRoles are those that every device has all of.
var wholeRoles = []Role{
	Embedding, FinalNorm, AttentionNorm, QueryNorm, KeyNorm, MLPNorm, Router, SharedWeight, DeltaNorm,
	MTPProjection, MTPEmbeddingNorm, MTPHiddenNorm, MTPFinalNorm,
}

// TestCuts: what devices cut in runs are all of a tensor's outputs or inputs, runs divide
// where the counts that devices share do, and only what is small or looked up is whole.
func TestCuts(t *testing.T) {
	for _, a := range []*Architecture{qwen3MoE, qwen3Next, qwen35, qwen35MoE} {
		for _, tiled := range []bool{false, true} {
			c := mixed(a)
			if c.Delta.Tiled = tiled; a == qwen3MoE {
				c.Delta, c.MTPLayers, c.AttentionGate = nil, 0, false
			}
			for _, n := range a.Shared {
				if n.Of(c)%2 != 0 {
					t.Errorf("%s: %d %s", a.Name, n.Of(c), n.Name)
				}
			}
			for _, p := range a.Tensors(c) {
				x := p.Cut(c, backend.Tensor{Shape: p.Shape})
				if ofKeys := p.Role == Key || p.Role == Value; ofKeys != (x.Heads == c.KVHeads) || !ofKeys && x.Heads != 0 {
					t.Errorf("%s: %s is of %d heads", a.Name, p.Name, x.Heads)
				}
				along := 0
				switch x.Split {
				case backend.SplitNone:
					if p.Class != ClassBias && !slices.Contains(wholeRoles, p.Role) {
						t.Errorf("%s: %s is whole on each device", a.Name, p.Name)
					}
					continue
				case backend.SplitInputs:
					along = len(p.Shape) - 1
				case backend.SplitOutputs:
					along = map[bool]int{true: len(p.Shape) - 2}[p.Class == ClassExpert]
				}
				runs, sum := x.Sections, 0
				if runs == nil {
					runs = []int{p.Shape[along]}
				}
				for _, n := range runs {
					if sum += n; n%2 != 0 && p.Role != Head { // which need not be equal

						t.Errorf("%s, tiled %v: %s is cut in runs of %v", a.Name, tiled, p.Name, runs)
					}
				}
				if sum != p.Shape[along] {
					t.Errorf("%s, tiled %v: %s of %v is cut in runs of %v", a.Name, tiled, p.Name, p.Shape, runs)
				}
			}
		}
	}
	// Of two key heads with three value heads each device has one, with its three.
	c := mixed(qwen35)
	z := func(tiled bool) []int {
		c.Delta.Tiled = tiled
		return qwen35.Role(c, 0, DeltaZ, ClassProjection)[0].Cut(c, backend.Tensor{}).Sections
	}
	if flat, tiled := z(false), z(true); flat != nil || !slices.Equal(tiled, []int{24, 24, 24}) {
		t.Errorf("z is cut in %v, and tiled in %v", flat, tiled)
	}
	qkv := qwen35.Role(c, 0, DeltaQKV, ClassProjection)[0].Cut(c, backend.Tensor{}).Sections
	if !slices.Equal(qkv, []int{16, 16, 24, 24, 24}) {
		t.Errorf("queries, keys and values are cut in %v", qkv)
	}
}

func TestHybridTables(t *testing.T) {
	for _, a := range []*Architecture{qwen3Next, qwen35, qwen35MoE} {
		c := mixed(a)
		for _, fault := range faults(a, c) {
			t.Errorf("%s: %s", a.Name, fault)
		}
		for _, p := range a.Tensors(c) {
			if found, ok := a.Find(c, p.Name); !ok || found.Parameter != p.Parameter || found.Layer != p.Layer || found.Expert != p.Expert {
				t.Errorf("%s: %s is found as %v, %v", a.Name, p.Name, found, ok)
			}
			if p.GGUF != "" {
				if row, name, ok := a.FromGGUF(c, p.GGUF); !ok || name != p.Name || row.Role != p.Role {
					t.Errorf("%s: %s is %s in GGUF files, which is %s, %v", a.Name, p.Name, p.GGUF, name, ok)
				}
			}
			if centred := p.Class == ClassNorm && p.Role != DeltaNorm; p.ZeroCentred != centred {
				t.Errorf("%s: %s is zero-centred: %v", a.Name, p.Name, p.ZeroCentred)
			}
			small := slices.Contains([]Role{Router, SharedWeight, DeltaConv, DeltaDecay, DeltaTimeStep}, p.Role) || p.Class == ClassNorm || p.Class == ClassBias
			if p.Class.Quantizable() == small {
				t.Errorf("%s: %s may be quantised: %v", a.Name, p.Name, !small)
			}
			if expert := strings.HasPrefix(string(p.Role), "gate of an expert") || p.Role == ExpertUp || p.Role == ExpertDown || p.Role == ExpertGateUp; expert != (p.Class == ClassExpert) {
				t.Errorf("%s: %s is of class %d", a.Name, p.Name, p.Class)
			}
			if drafts := strings.HasPrefix(p.Name, "mtp."); drafts != (p.Layer == c.Layers) || drafts && p.ReadBytes(c, 100) != 0 {
				t.Errorf("%s: %s is in layer %d, of which a token reads %d of 100 bytes", a.Name, p.Name, p.Layer, p.ReadBytes(c, 100))
			}
		}
		// Nothing of a head for drafts is there where a config has none.
		c.MTPLayers = 0
		for _, name := range []string{"mtp.fc.weight", "mtp.layers.0.self_attn.q_proj.weight"} {
			if _, ok := a.Find(c, name); ok {
				t.Errorf("%s: %s is found in a model without one", a.Name, name)
			}
		}
		if _, _, ok := a.FromGGUF(c, "blk.3.nextn.eh_proj.weight"); ok {
			t.Errorf("%s: a block for drafts in a model without one", a.Name)
		}
	}
}

func TestHybridNames(t *testing.T) {
	for _, tc := range []struct {
		a          *Architecture
		name, want string
	}{
		{qwen3Next, "model.layers.0.linear_attn.in_proj_qkvz.weight", "query, key, value and z [176 40] gguf blk.0.ssm_in.weight"},
		{qwen3Next, "model.layers.0.linear_attn.in_proj_ba.weight", "b and a [12 40] gguf blk.0.ssm_ba.weight"},
		{qwen35, "model.layers.2.linear_attn.in_proj_qkv.weight", "query, key and value [104 40] gguf blk.2.attn_qkv.weight"},
		{qwen35, "model.layers.2.linear_attn.in_proj_z.weight", "z [72 40] gguf blk.2.attn_gate.weight"},
		{qwen35, "model.layers.2.linear_attn.in_proj_a.weight", "a [6 40] gguf blk.2.ssm_alpha.weight"},
		{qwen35, "model.layers.2.linear_attn.in_proj_b.weight", "b [6 40] gguf blk.2.ssm_beta.weight"},
		{qwen35, "model.layers.0.linear_attn.conv1d.weight", "convolution [104 1 4] gguf blk.0.ssm_conv1d.weight"},
		{qwen35, "model.layers.0.linear_attn.A_log", "decay [6] gguf blk.0.ssm_a"},
		{qwen35, "model.layers.0.linear_attn.dt_bias", "time step [6] gguf blk.0.ssm_dt.bias"},
		{qwen35, "model.layers.0.linear_attn.norm.weight", "delta norm [12] gguf blk.0.ssm_norm.weight"},
		{qwen35, "model.layers.0.linear_attn.out_proj.weight", "delta output [40 72] gguf blk.0.ssm_out.weight"},
		{qwen35, "model.layers.1.linear_attn.out_proj.weight", ""},
		{qwen35, "model.layers.0.self_attn.q_proj.weight", ""},
		{qwen35, "model.layers.1.self_attn.q_proj.weight", "query [192 40] gguf blk.1.attn_q.weight"},
		{qwen35, "model.layers.1.post_attention_layernorm.weight", "mlp norm [40] gguf blk.1.post_attention_norm.weight"},
		{qwen3Next, "model.layers.1.mlp.gate_proj.weight", "gate [72 40] gguf blk.1.ffn_gate.weight"},
		{qwen3Next, "model.layers.1.mlp.shared_expert_gate.weight", ""},
		{qwen3Next, "model.layers.2.mlp.shared_expert_gate.weight", "weight of the shared expert [1 40] gguf blk.2.ffn_gate_inp_shexp.weight"},
		{qwen35MoE, "model.layers.2.mlp.shared_expert.down_proj.weight", "down of the shared expert [40 28] gguf blk.2.ffn_down_shexp.weight"},
		{qwen35MoE, "model.layers.0.mlp.experts.gate_up_proj", "gate and up of an expert [4 48 40] gguf blk.0.ffn_gate_up_exps.weight"},
		{qwen35MoE, "mtp.layers.0.mlp.experts.3.up_proj.weight", "up of an expert [24 40] gguf "},
		{qwen35MoE, "mtp.layers.0.self_attn.k_norm.weight", "key norm [16] gguf blk.3.attn_k_norm.weight"},
		{qwen35MoE, "mtp.layers.1.self_attn.k_norm.weight", ""},
		{qwen35MoE, "model.layers.3.self_attn.k_norm.weight", ""},
		{qwen35MoE, "mtp.layers.0.linear_attn.A_log", ""},
		{qwen35MoE, "mtp.fc.weight", "draft projection [40 80] gguf blk.3.nextn.eh_proj.weight"},
		{qwen35MoE, "mtp.norm.weight", "draft final norm [40] gguf blk.3.nextn.shared_head_norm.weight"},
	} {
		got := ""
		if p, ok := tc.a.Find(mixed(tc.a), tc.name); ok {
			got = fmt.Sprintf("%s %v gguf %s", p.Role, p.Shape, p.GGUF)
		}
		if got != tc.want {
			t.Errorf("%s: %s: %q, want %q", tc.a.Name, tc.name, got, tc.want)
		}
	}
}

// A_log comes back from its rounded exponential: the same bits where it was in bf16, and
// otherwise a number that has the same exponential.
func TestLogarithm(t *testing.T) {
	for bits := range 1 << 16 {
		l := math.Float32frombits(uint32(bits) << 16)
		if !(l > -80 && l < 80) {
			continue
		}
		a := float32(math.Exp(float64(l)))
		if got := logarithmOf(a); float32(math.Exp(float64(got))) != a || math.Abs(float64(l)) > 0.01 && got != l {
			t.Fatalf("exp(%v) gives back %v", l, got)
		}
	}
	for i := range 100000 {
		l := float32(-5 + float64(i)*1e-4 + 1e-7*float64(i%13))
		a := float32(math.Exp(float64(l)))
		if got := logarithmOf(a); float32(math.Exp(float64(got))) != a {
			t.Fatalf("exp(%v) = %v gives back %v, whose exponential is %v", l, a, got, float32(math.Exp(float64(got))))
		}
	}
	vector := func(values ...float32) backend.Tensor {
		x := backend.Tensor{Name: "a", DType: backend.F32, Shape: []int{len(values)}}
		for _, v := range values {
			x.Data = binary.LittleEndian.AppendUint32(x.Data, math.Float32bits(v))
		}
		return x
	}
	for _, bad := range []float32{0, 1, float32(math.NaN()), float32(math.Inf(-1))} {
		if _, err := logarithm(nil, vector(-1, bad)); err == nil {
			t.Errorf("a decay of %v was taken", bad)
		}
	}
}

func TestKeyHeads(t *testing.T) {
	d := &DeltaNet{KeyHeads: 2, ValueHeads: 6}
	for tiled, want := range map[bool]string{false: "[0 0 0 1 1 1]", true: "[0 1 0 1 0 1]"} {
		d.Tiled = tiled
		var list []int
		for j := range d.ValueHeads {
			list = append(list, d.KeyHead(j))
		}
		if fmt.Sprint(list) != want {
			t.Errorf("tiled %v: %v, want %s", tiled, list, want)
		}
	}
}
