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

// weightsOf lists the tensors that random weights of a config have, in the order
// of a checkpoint: those that every model of its architecture has, and those
// that its published models have.
func weightsOf(c *checkpoint.Config) []architecture.Tensor {
	return slices.DeleteFunc(architecture.Of(c).Tensors(c), func(t architecture.Tensor) bool { return !t.Need.Invented(c) })
}

// elements is how many weights a tensor has.
func elements(t architecture.Tensor) int { return backend.Tensor{Shape: t.Shape}.Elements() }
