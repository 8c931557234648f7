package architecture

import "windrow/backend"

// The dense transformers of Qwen: Qwen3 has norms of queries and keys, Qwen2 has
// biases on queries, keys and values; WeDLM is either of the two, trained to fill
// windows.
var (
	qwen3 = dense(Architecture{Name: "qwen3", Class: "Qwen3ForCausalLM", GGUF: "qwen3"}, Required, Optional)
	qwen2 = dense(Architecture{Name: "qwen2", Class: "Qwen2ForCausalLM", GGUF: "qwen2"}, Optional, Usual)
	wedlm = dense(Architecture{Name: "wedlm", Class: "WeDLMForCausalLM"}, Usual, Optional)
)

// dense fills in the table of a pre-norm transformer of attention and SwiGLU.
// headNorms is the need of norms of queries and keys, biases that of biases on
// queries, keys and values.
//
// Several devices share it as Megatron-LM does (arXiv 1909.08053, section 3):
// heads of attention and inner columns of the MLP are cut, so that the outputs
// of attention and MLP are sums over what each device has. Norms, the embedding
// and the biases of those sums are whole. Where there are more devices than KV
// heads, those whose query heads share one have a copy of it each.
func dense(a Architecture, headNorms, biases Need) *Architecture {
	a.Input = []Parameter{
		{Role: Embedding, Class: ClassEmbedding, Name: "model.embed_tokens.weight", GGUF: "token_embd.weight",
			Shape: []Dim{vocabulary, hidden}, Read: ReadSome},
	}
	a.Layers = []Part{
		{Name: "attention", Parameters: []Parameter{
			norm(AttentionNorm, "input_layernorm", "attn_norm", hidden, Required),
			projection(Query, "self_attn.q_proj", "attn_q", queries, hidden, backend.SplitOutputs),
			ofKeys(projection(Key, "self_attn.k_proj", "attn_k", keys, hidden, backend.SplitOutputs)),
			ofKeys(projection(Value, "self_attn.v_proj", "attn_v", keys, hidden, backend.SplitOutputs)),
			bias(Query, "self_attn.q_proj", "attn_q", queries, backend.SplitOutputs, biases),
			ofKeys(bias(Key, "self_attn.k_proj", "attn_k", keys, backend.SplitOutputs, biases)),
			ofKeys(bias(Value, "self_attn.v_proj", "attn_v", keys, backend.SplitOutputs, biases)),
			norm(QueryNorm, "self_attn.q_norm", "attn_q_norm", headDim, headNorms),
			norm(KeyNorm, "self_attn.k_norm", "attn_k_norm", headDim, headNorms),
			projection(Output, "self_attn.o_proj", "attn_output", hidden, queries, backend.SplitInputs),
			bias(Output, "self_attn.o_proj", "attn_output", hidden, backend.SplitNone, Optional),
		}},
		{Name: "mlp", Parameters: []Parameter{
			norm(MLPNorm, "post_attention_layernorm", "ffn_norm", hidden, Required),
			projection(Gate, "mlp.gate_proj", "ffn_gate", inner, hidden, backend.SplitOutputs),
			projection(Up, "mlp.up_proj", "ffn_up", inner, hidden, backend.SplitOutputs),
			projection(Down, "mlp.down_proj", "ffn_down", hidden, inner, backend.SplitInputs),
			bias(Gate, "mlp.gate_proj", "ffn_gate", inner, backend.SplitOutputs, Optional),
			bias(Up, "mlp.up_proj", "ffn_up", inner, backend.SplitOutputs, Optional),
			bias(Down, "mlp.down_proj", "ffn_down", hidden, backend.SplitNone, Optional),
		}},
	}
	a.Output = []Parameter{
		norm(FinalNorm, "model.norm", "output_norm", hidden, Required),
		{Role: Head, Class: ClassHead, Name: "lm_head.weight", GGUF: "output.weight",
			Shape: []Dim{vocabulary, hidden}, Need: NeededUntied, Split: backend.SplitOutputs},
	}
	a.Shared = []Count{{Name: "KV heads", Of: kvHeads, Copied: true}, {Name: "heads", Of: heads}, {Name: "inner columns", Of: denseInner}}
	return &a
}

// projection, norm and bias are rows of a module's weight or bias.
func projection(role Role, name, gguf string, out, in Dim, split backend.Split) Parameter {
	return Parameter{Role: role, Class: ClassProjection, Name: name + ".weight", GGUF: gguf + ".weight", Shape: []Dim{out, in}, Split: split}
}

func norm(role Role, name, gguf string, n Dim, need Need) Parameter {
	return Parameter{Role: role, Class: ClassNorm, Name: name + ".weight", GGUF: gguf + ".weight", Shape: []Dim{n}, Need: need}
}

func bias(role Role, name, gguf string, n Dim, split backend.Split, need Need) Parameter {
	return Parameter{Role: role, Class: ClassBias, Name: name + ".bias", GGUF: gguf + ".bias", Shape: []Dim{n}, Split: split, Need: need}
}

// ofKeys is a parameter whose outputs are KV heads.
func ofKeys(p Parameter) Parameter {
	p.Heads = kvHeads
	return p
}

func hidden(c *Config) int     { return c.HiddenSize }
func vocabulary(c *Config) int { return c.VocabSize }
func inner(c *Config) int      { return c.IntermediateSize }

// denseInner is inner where some layer has an MLP of its own.
func denseInner(c *Config) int {
	for layer := range c.Layers {
		if !c.Sparse(layer) {
			return inner(c)
		}
	}
	return 0
}

func heads(c *Config) int   { return c.Heads }
func kvHeads(c *Config) int { return c.KVHeads }
func headDim(c *Config) int { return c.HeadDim }
func queries(c *Config) int { return c.Heads * c.HeadDim }
func keys(c *Config) int    { return c.KVHeads * c.HeadDim }
