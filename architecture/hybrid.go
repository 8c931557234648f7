package architecture

import (
	"fmt"
	"math"
	"slices"

	"windrow/backend"
	"windrow/quant"
)

// The hybrids of Qwen: three of four layers are gated DeltaNets, the fourth has
// attention with a gate and rotates a quarter of each head. Qwen3-Next has the
// projections of a DeltaNet fused by key head, Qwen3.5 has them apart.
var (
	qwen3Next = hybridOf(mixture(dense(Architecture{Name: "qwen3_next", Class: "Qwen3NextForCausalLM", GGUF: "qwen3next",
		Defaults: hybridDefaults(Experts{Count: 512, PerToken: 10, InnerSize: 512, Renormalise: true, SharedInnerSize: 512}, false)}, Required, Optional)), true)
	qwen35 = hybridOf(dense(Architecture{Name: "qwen3_5_text", Class: "Qwen3_5ForCausalLM", GGUF: "qwen35", TiledInGGUF: true,
		Wrapper: "qwen3_5", WrapperClass: "Qwen3_5ForConditionalGeneration", Defaults: hybridDefaults(Experts{}, false)}, Required, Optional), false)
	qwen35MoE = hybridOf(mixture(dense(Architecture{Name: "qwen3_5_moe_text", Class: "Qwen3_5MoeForCausalLM", GGUF: "qwen35moe", TiledInGGUF: true,
		Wrapper: "qwen3_5_moe", WrapperClass: "Qwen3_5MoeForConditionalGeneration",
		Defaults: hybridDefaults(Experts{Count: 256, PerToken: 8, InnerSize: 512, Renormalise: true, SharedInnerSize: 512}, true)}, Required, Optional)), false)
)

func hybridDefaults(e Experts, eachHas bool) Defaults {
	return Defaults{HeadDim: 256, Rotated: 0.25, Experts: e, EachHas: eachHas, Untied: true, Interval: 4}
}

// hybridOf makes a table one of a hybrid: it has no biases, its norms are zero-centred,
// queries have gates, some layers are DeltaNets, mixtures have an expert that every row has,
// and there may be a head for drafts. fused says which form of a DeltaNet's projections
// published models have.
func hybridOf(a *Architecture, fused bool) *Architecture {
	for i := range a.Layers {
		part := &a.Layers[i]
		part.Parameters = slices.DeleteFunc(part.Parameters, func(p Parameter) bool { return p.Class == ClassBias })
		for k := range part.Parameters {
			p := &part.Parameters[k]
			p.ZeroCentred = p.Class == ClassNorm
			switch p.Role {
			case Query:
				p.Shape[0] = gatedQueries
			case MLPNorm:
				p.GGUF = "post_attention_norm.weight"
			}
		}
		if part.Name == "attention" {
			part.In = func(c *Config, layer int) bool { return !c.Recurrent(layer) }
		}
	}
	for i := range a.Output {
		a.Output[i].ZeroCentred = a.Output[i].Class == ClassNorm
	}
	a.Layers = append([]Part{a.Layers[0], deltaPart(fused)}, a.Layers[1:]...)
	if a.Mixture() {
		a.Layers = append(a.Layers, sharedExpert)
	}
	a.Layers = append(a.Layers, Part{Name: "mtp", Prefix: mtpPrefix, In: func(c *Config, layer int) bool { return layer >= c.Layers }, Parameters: []Parameter{
		{Role: MTPProjection, Class: ClassProjection, Name: "fc.weight", GGUF: "nextn.eh_proj.weight", Shape: []Dim{hidden, twice(hidden)}},
		centred(MTPEmbeddingNorm, "pre_fc_norm_embedding", "nextn.enorm", hidden),
		centred(MTPHiddenNorm, "pre_fc_norm_hidden", "nextn.hnorm", hidden),
		centred(MTPFinalNorm, "norm", "nextn.shared_head_norm", hidden),
	}})
	a.Shared = append(a.Shared, Count{Name: "key heads of DeltaNet", Of: keyHeads})
	if a.Mixture() {
		a.Shared = append(a.Shared, Count{Name: "inner columns of the shared expert", Of: sharedInner})
	}
	return a
}

func centred(role Role, name, gguf string, n Dim) Parameter {
	p := norm(role, name, gguf, n, Required)
	p.ZeroCentred = true
	return p
}

// deltaPart has both forms of the projections for either family: a GGUF file of
// Qwen3-Next has q, k, v and z as Qwen3.5 has them.
//
// Devices have some key heads each, with all of their value heads: what lies by key head
// is cut in one, queries, keys and values behind each other each by itself (valueRuns).
func deltaPart(fused bool) Part {
	need := func(published bool) Need {
		if published {
			return Usual
		}
		return Optional
	}
	form := func(role Role, name, gguf string, out Dim, runs func(*Config) []int, published bool) Parameter {
		p := projection(role, "linear_attn."+name, gguf, out, hidden, backend.SplitOutputs)
		p.Need, p.Sections = need(published), runs
		return p
	}
	values, heads := valueRuns(valueDim), valueRuns(one)
	output := projection(DeltaOutput, "linear_attn.out_proj", "ssm_out", hidden, deltaValues, backend.SplitInputs)
	output.Sections = values
	return Part{Name: "delta", In: (*Config).Recurrent, Parameters: []Parameter{
		centred(AttentionNorm, "input_layernorm", "attn_norm", hidden),
		form(DeltaQKVZ, "in_proj_qkvz", "ssm_in", deltaQKVZ, nil, fused),
		form(DeltaQKV, "in_proj_qkv", "attn_qkv", deltaChannels, channelRuns, !fused),
		form(DeltaZ, "in_proj_z", "attn_gate", deltaValues, values, !fused),
		form(DeltaBA, "in_proj_ba", "ssm_ba", twice(valueHeads), nil, fused),
		form(DeltaB, "in_proj_b", "ssm_beta", valueHeads, heads, !fused),
		form(DeltaA, "in_proj_a", "ssm_alpha", valueHeads, heads, !fused),
		{Role: DeltaConv, Class: ClassOther, Name: "linear_attn.conv1d.weight", GGUF: "ssm_conv1d.weight", Shape: []Dim{deltaChannels, one, conv}, Restore: convolution, Split: backend.SplitOutputs, Sections: channelRuns},
		{Role: DeltaDecay, Class: ClassOther, Name: "linear_attn.A_log", GGUF: "ssm_a", Shape: []Dim{valueHeads}, Restore: logarithm, Split: backend.SplitOutputs, Sections: heads},
		{Role: DeltaTimeStep, Class: ClassOther, Name: "linear_attn.dt_bias", GGUF: "ssm_dt.bias", Shape: []Dim{valueHeads}, Split: backend.SplitOutputs, Sections: heads},
		norm(DeltaNorm, "linear_attn.norm", "ssm_norm", valueDim, Required),
		output,
	}}
}

// valueRuns are the runs of value heads, so wide each, that devices cut by key heads: one
// where the value heads of a key head follow each other, else as many as it has.
func valueRuns(width Dim) func(*Config) []int {
	return func(c *Config) (runs []int) {
		d := delta(c)
		if !d.Tiled || d.KeyHeads == d.ValueHeads {
			return nil
		}
		for range d.ValueHeads / d.KeyHeads {
			runs = append(runs, d.KeyHeads*width(c))
		}
		return runs
	}
}

// channelRuns are the runs of queries, of keys, and of values.
func channelRuns(c *Config) []int {
	values := valueRuns(valueDim)(c)
	if values == nil {
		values = []int{deltaValues(c)}
	}
	return append([]int{delta(c).Keys(), delta(c).Keys()}, values...)
}

// sharedExpert is the one that every row has.
var sharedExpert = Part{
	Name: "shared expert",
	In:   func(c *Config, layer int) bool { return c.Sparse(layer) && c.Experts.SharedInnerSize > 0 },
	Parameters: []Parameter{
		projection(SharedGate, "mlp.shared_expert.gate_proj", "ffn_gate_shexp", sharedInner, hidden, backend.SplitOutputs),
		projection(SharedUp, "mlp.shared_expert.up_proj", "ffn_up_shexp", sharedInner, hidden, backend.SplitOutputs),
		projection(SharedDown, "mlp.shared_expert.down_proj", "ffn_down_shexp", hidden, sharedInner, backend.SplitInputs),
		{Role: SharedWeight, Class: ClassOther, Name: "mlp.shared_expert_gate.weight", GGUF: "ffn_gate_inp_shexp.weight", Shape: []Dim{one, hidden}, Restore: oneRow},
	},
}

// convolution is the kernel [channels, 1, rows] of [channels, rows].
func convolution(_ *Config, t backend.Tensor) (backend.Tensor, error) {
	if len(t.Shape) == 2 {
		t.Shape = []int{t.Shape[0], 1, t.Shape[1]}
	}
	return t, nil
}

// oneRow is a matrix [1, n] of a vector.
func oneRow(_ *Config, t backend.Tensor) (backend.Tensor, error) {
	if len(t.Shape) == 1 {
		t.Shape = []int{1, t.Shape[0]}
	}
	return t, nil
}

// logarithm is A_log of −exp(A_log), which GGUF files have. Where the one is a
// rounded exponential it gives back the number that this was made of, in bf16 or
// in f32, so that a model has the same bits in either form.
func logarithm(_ *Config, t backend.Tensor) (backend.Tensor, error) {
	if len(t.Shape) > 1 { // as [1, n] in some files
		t.Shape = []int{t.Elements()}
	}
	values, err := quant.Vector(t)
	if err != nil {
		return t, err
	}
	for i, a := range values {
		if !(a < 0) || math.IsInf(float64(a), 0) {
			return t, fmt.Errorf("element %d is %v, want −exp(A_log): a negative number", i, a)
		}
		values[i] = logarithmOf(-a)
	}
	t.DType, t.Data = backend.F32, make([]byte, 4*len(values))
	quant.Blocks(t.Data, backend.F32, values)
	return t, nil
}

// logarithmOf is a number of bf16 or else of f32 whose exponential is a; the nearest
// where none is.
func logarithmOf(a float32) float32 {
	is := func(l float32) bool { return float32(math.Exp(float64(l))) == a }
	nearest := float32(math.Log(float64(a)))
	short := quant.BF16ToF32(quant.F32ToBF16(nearest))
	for _, l := range []float32{short, nearest, math.Nextafter32(nearest, -math.MaxFloat32), math.Nextafter32(nearest, math.MaxFloat32)} {
		if is(l) {
			return l
		}
	}
	return nearest
}

func one(*Config) int            { return 1 }
func gatedQueries(c *Config) int { return queries(c) * (1 + ofBool(c.AttentionGate)) }

func sharedInner(c *Config) int {
	if c.Experts == nil {
		return 0
	}
	return c.Experts.SharedInnerSize
}

// delta is the shape of a config's DeltaNets; one of no size where there are none.
func delta(c *Config) *DeltaNet {
	if c.Delta == nil {
		return &DeltaNet{}
	}
	return c.Delta
}

func keyHeads(c *Config) int      { return delta(c).KeyHeads }
func valueHeads(c *Config) int    { return delta(c).ValueHeads }
func valueDim(c *Config) int      { return delta(c).ValueDim }
func conv(c *Config) int          { return delta(c).Conv }
func deltaValues(c *Config) int   { return delta(c).Values() }
func deltaChannels(c *Config) int { return delta(c).Channels() }
func deltaQKVZ(c *Config) int     { return deltaChannels(c) + deltaValues(c) }

func ofBool(b bool) int {
	if b {
		return 1
	}
	return 0
}
