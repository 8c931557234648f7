package synthetic

import (
	"maps"
	"slices"
	"strconv"

	"windrow/checkpoint"
	"windrow/rope"
)

// shapes are the configs of published models, as their config.json gives
// them.
var shapes = map[string]checkpoint.Config{
	"qwen3-0.6b": qwen3Shape(1024, 28, 16, 3072, true),
	"qwen3-1.7b": qwen3Shape(2048, 28, 16, 6144, true),
	"qwen3-4b":   qwen3Shape(2560, 36, 32, 9728, true),
	"qwen3-8b":   qwen3Shape(4096, 36, 32, 12288, false),
	"wedlm-8b":   wedlmShape(),
	"tiny-gsm": {
		Architecture: "wedlm", HiddenSize: 384, Layers: 8, Heads: 6, KVHeads: 2, HeadDim: 64, IntermediateSize: 1024,
		VocabSize: 4096, RMSNormEps: 1e-6, MaxPositions: 4096, TieEmbeddings: true,
		Rope:        rope.Config{Type: rope.Default, HeadDim: 64, Theta: 10000},
		MaskTokenID: 4095, EOSTokenIDs: []int32{4094}, DType: "bfloat16",
	},
}

func qwen3Shape(hidden, layers, heads, intermediate int, tied bool) checkpoint.Config {
	return checkpoint.Config{
		Architecture: "qwen3", HiddenSize: hidden, Layers: layers, Heads: heads, KVHeads: 8, HeadDim: 128, IntermediateSize: intermediate,
		VocabSize: 151936, RMSNormEps: 1e-6, MaxPositions: 40960, TieEmbeddings: tied,
		Rope:        rope.Config{Type: rope.Default, HeadDim: 128, Theta: 1e6},
		MaskTokenID: -1, EOSTokenIDs: []int32{151645}, DType: "bfloat16",
	}
}

// wedlmShape is Qwen3-8B's with another context, stop id and mask.
func wedlmShape() checkpoint.Config {
	c := qwen3Shape(4096, 36, 32, 12288, false)
	c.Architecture, c.MaxPositions, c.MaskTokenID, c.EOSTokenIDs = "wedlm", 16384, checkpoint.DefaultMaskTokenID, []int32{151643}
	return c
}

// ShapeConfig returns the config of a published model by name, such as
// "qwen3-8b"; ShapeNames lists them.
func ShapeConfig(name string) (*checkpoint.Config, bool) {
	c, ok := shapes[name]
	c.EOSTokenIDs = slices.Clone(c.EOSTokenIDs)
	return &c, ok
}

// ShapeNames lists what ShapeConfig knows, sorted.
func ShapeNames() []string { return slices.Sorted(maps.Keys(shapes)) }

// weightShape is the name and shape of one tensor of a checkpoint.
type weightShape struct {
	name  string
	shape []int
}

func (w weightShape) elements() int {
	n := 1
	for _, d := range w.shape {
		n *= d
	}
	return n
}

// weightShapes lists the tensors of a config in the order of a checkpoint:
// with biases on q, k and v for qwen2, with q and k norms for the others.
func weightShapes(c *checkpoint.Config) []weightShape {
	var list []weightShape
	add := func(name string, shape ...int) { list = append(list, weightShape{name, shape}) }
	queries, keys := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	add("model.embed_tokens.weight", c.VocabSize, c.HiddenSize)
	for i := range c.Layers {
		layer := "model.layers." + strconv.Itoa(i) + "."
		add(layer+"input_layernorm.weight", c.HiddenSize)
		add(layer+"self_attn.q_proj.weight", queries, c.HiddenSize)
		add(layer+"self_attn.k_proj.weight", keys, c.HiddenSize)
		add(layer+"self_attn.v_proj.weight", keys, c.HiddenSize)
		if c.Architecture == "qwen2" {
			add(layer+"self_attn.q_proj.bias", queries)
			add(layer+"self_attn.k_proj.bias", keys)
			add(layer+"self_attn.v_proj.bias", keys)
		} else {
			add(layer+"self_attn.q_norm.weight", c.HeadDim)
			add(layer+"self_attn.k_norm.weight", c.HeadDim)
		}
		add(layer+"self_attn.o_proj.weight", c.HiddenSize, queries)
		add(layer+"post_attention_layernorm.weight", c.HiddenSize)
		add(layer+"mlp.gate_proj.weight", c.IntermediateSize, c.HiddenSize)
		add(layer+"mlp.up_proj.weight", c.IntermediateSize, c.HiddenSize)
		add(layer+"mlp.down_proj.weight", c.HiddenSize, c.IntermediateSize)
	}
	add("model.norm.weight", c.HiddenSize)
	if !c.TieEmbeddings {
		add("lm_head.weight", c.VocabSize, c.HiddenSize)
	}
	return list
}
