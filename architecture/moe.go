package architecture

import "windrow/backend"

// qwen3MoE is Qwen3 with a mixture of experts in place of the MLP, in all layers or
// in some.
var qwen3MoE = mixture(dense(Architecture{Name: "qwen3_moe", Class: "Qwen3MoeForCausalLM", GGUF: "qwen3moe",
	Defaults: Defaults{Experts: Experts{Count: 128, PerToken: 8, InnerSize: 768}}}, Required, Optional))

// mixture adds the layers with experts. Devices cut inside of each expert, as in a dense
// MLP: each reads its share of the experts that a row chose, whichever they are. The
// router is whole, so that all choose the same.
//
// Files have the experts' matrices one by one (Hugging Face), all of a kind in one tensor
// (MLX and GGUF), or gate and up of all in one (later Hugging Face models).
func mixture(a *Architecture) *Architecture {
	for i := range a.Layers {
		if a.Layers[i].Name == "mlp" {
			a.Layers[i].In = func(c *Config, layer int) bool { return !c.Sparse(layer) }
		}
	}
	part := Part{Name: "experts", In: (*Config).Sparse, Parameters: []Parameter{
		norm(MLPNorm, "post_attention_layernorm", "ffn_norm", hidden, Required),
		{Role: Router, Class: ClassOther, Name: "mlp.gate.weight", GGUF: "ffn_gate_inp.weight", Shape: []Dim{experts, hidden}},
	}}
	add := func(role Role, name, gguf string, out, in Dim, split backend.Split) {
		part.Parameters = append(part.Parameters,
			Parameter{Role: role, Class: ClassExpert, Name: "mlp.experts.#." + name + ".weight", Shape: []Dim{out, in}, Need: Usual, Read: ReadChosen, Each: experts, Split: split},
			Parameter{Role: role, Class: ClassExpert, Name: "mlp.switch_mlp." + name + ".weight", GGUF: gguf + ".weight", Shape: []Dim{experts, out, in}, Need: Optional, Read: ReadChosen, Split: split},
		)
	}
	add(ExpertGate, "gate_proj", "ffn_gate_exps", expertInner, hidden, backend.SplitOutputs)
	add(ExpertUp, "up_proj", "ffn_up_exps", expertInner, hidden, backend.SplitOutputs)
	add(ExpertDown, "down_proj", "ffn_down_exps", hidden, expertInner, backend.SplitInputs)
	part.Parameters = append(part.Parameters,
		Parameter{Role: ExpertGateUp, Class: ClassExpert, Name: "mlp.experts.gate_up_proj", GGUF: "ffn_gate_up_exps.weight", Shape: []Dim{experts, twice(expertInner), hidden}, Need: Optional, Read: ReadChosen, Split: backend.SplitOutputs,
			Sections: func(c *Config) []int { return []int{expertInner(c), expertInner(c)} }},
		Parameter{Role: ExpertDown, Class: ClassExpert, Name: "mlp.experts.down_proj", Shape: []Dim{experts, hidden, expertInner}, Need: Optional, Read: ReadChosen, Split: backend.SplitInputs},
	)
	a.Layers = append(a.Layers, part)
	a.Shared = append(a.Shared, Count{Name: "inner columns of an expert", Of: expertInner})
	return a
}

func twice(n Dim) Dim { return func(c *Config) int { return 2 * n(c) } }

func experts(c *Config) int {
	if c.Experts == nil {
		return 0
	}
	return c.Experts.Count
}

func expertInner(c *Config) int {
	if c.Experts == nil {
		return 0
	}
	return c.Experts.InnerSize
}
