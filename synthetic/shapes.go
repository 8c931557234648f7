package synthetic

import (
	"maps"
	"slices"

	"windrow/architecture"
	"windrow/backend"
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

	"qwen3-30b-a3b":         mixtureShape(2048, 48, 32, 6144, checkpoint.Experts{Count: 128, InnerSize: 768}),
	"qwen3-235b-a22b":       mixtureShape(4096, 94, 64, 12288, checkpoint.Experts{Count: 128, InnerSize: 1536}),
	"qwen3-coder-480b-a35b": mixtureShape(6144, 62, 96, 8192, checkpoint.Experts{Count: 160, InnerSize: 2560}),

	"qwen3-next-80b-a3b": nextShape(),
	"qwen3.5-35b-a3b":    qwen35Shape(2048, 40, 16, 2, 16, 32, &checkpoint.Experts{Count: 256, PerToken: 8, InnerSize: 512, SharedInnerSize: 512}, 0),
	"qwen3.5-122b-a10b":  qwen35Shape(3072, 48, 32, 2, 16, 64, &checkpoint.Experts{Count: 256, PerToken: 8, InnerSize: 1024, SharedInnerSize: 1024}, 0),
	"qwen3.5-397b-a17b":  qwen35Shape(4096, 60, 32, 2, 16, 64, &checkpoint.Experts{Count: 512, PerToken: 10, InnerSize: 1024, SharedInnerSize: 1024}, 0),
	"qwen3.5-27b":        qwen35Shape(5120, 64, 24, 4, 16, 48, nil, 17408),
	"qwen3.5-9b":         qwen35Shape(4096, 32, 16, 4, 16, 32, nil, 12288),
	"qwen3.5-4b":         qwen35Shape(2560, 32, 16, 4, 16, 32, nil, 9216),
	"qwen3.5-2b":         qwen35Shape(2048, 24, 8, 2, 16, 16, nil, 6144),
	"qwen3.5-0.8b":       qwen35Shape(1024, 24, 8, 2, 16, 16, nil, 3584),

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

// mixtureShape is that of a Qwen3 with 8 experts for each row.
func mixtureShape(hidden, layers, heads, intermediate int, e checkpoint.Experts) checkpoint.Config {
	c := qwen3Shape(hidden, layers, heads, intermediate, false)
	e.PerToken, e.Renormalise, e.Step = 8, true, 1
	c.Architecture, c.Experts = "qwen3_moe", &e
	c.KVHeads = 4
	if heads == 96 { // the coder of 480B
		c.KVHeads, c.MaxPositions, c.Rope.Theta = 8, 262144, 1e7
	}
	return c
}

// qwen35Shape is that of a hybrid, dense where there are no experts: heads and KV heads
// are those of attention, key and value heads those of DeltaNet. The small ones are tied.
func qwen35Shape(hidden, layers, heads, kv, keyHeads, valueHeads int, e *checkpoint.Experts, intermediate int) checkpoint.Config {
	c := checkpoint.Config{
		Architecture: "qwen3_5_text", HiddenSize: hidden, Layers: layers, Heads: heads, KVHeads: kv, HeadDim: 256, IntermediateSize: intermediate,
		VocabSize: 248320, RMSNormEps: 1e-6, MaxPositions: 262144, TieEmbeddings: hidden <= 2560 && e == nil,
		Rope:          rope.Config{Type: rope.Default, HeadDim: 64, Theta: 1e7},
		AttentionGate: true,
		Delta:         &checkpoint.DeltaNet{KeyHeads: keyHeads, ValueHeads: valueHeads, KeyDim: 128, ValueDim: 128, Conv: 4, Layers: architecture.Interleaved(layers, 4)},
		MaskTokenID:   -1, EOSTokenIDs: []int32{248044}, DType: "bfloat16",
	}
	if e != nil {
		e.Renormalise, e.Step = true, 1
		c.Architecture, c.Experts = "qwen3_5_moe_text", e
	}
	return c
}

// nextShape is Qwen3-Next's, and Qwen3-Coder-Next's.
func nextShape() checkpoint.Config {
	c := qwen35Shape(2048, 48, 16, 2, 16, 32, &checkpoint.Experts{Count: 512, PerToken: 10, InnerSize: 512, SharedInnerSize: 512}, 5120)
	c.Architecture, c.VocabSize, c.EOSTokenIDs = "qwen3_next", 151936, []int32{151645}
	return c
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
	if c.Delta != nil {
		d := *c.Delta
		d.Layers = slices.Clone(d.Layers)
		c.Delta = &d
	}
	if c.Experts != nil {
		e := *c.Experts
		c.Experts = &e
	}
	return &c, ok
}

// ShapeNames lists what ShapeConfig knows, sorted.
func ShapeNames() []string { return slices.Sorted(maps.Keys(shapes)) }

// weightsOf lists the tensors that random weights of a config have, in the order
// of a checkpoint: those that every model of its architecture has, and those
// that its published models have.
func weightsOf(c *checkpoint.Config) []architecture.Tensor {
	return slices.DeleteFunc(architecture.Of(c).Tensors(c), func(t architecture.Tensor) bool { return !t.Need.Invented(c) })
}

// elements is how many weights a tensor has.
func elements(t architecture.Tensor) int { return backend.Tensor{Shape: t.Shape}.Elements() }
