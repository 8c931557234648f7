package architecture

import (
	"fmt"
	"slices"
	"strings"

	"windrow/backend"
	"windrow/rope"
)

// Config is the shape of a model, as its config.json gives it. Whether there
// are q/k norms and biases is told by the tensors, not here.
type Config struct {
	Architecture     string // its name: "qwen3", "qwen2", "wedlm"
	HiddenSize       int
	Layers           int
	Heads            int // of queries
	KVHeads          int // of keys and values; divides Heads
	HeadDim          int // even; independent of HiddenSize/Heads
	IntermediateSize int
	VocabSize        int // rows of the embedding and the head
	// Experts are the mixtures of a model that has some; nil: its layers are dense.
	Experts *Experts
	// Delta is the shape of the layers that are no attention but gated DeltaNets;
	// nil: there are none.
	Delta *DeltaNet
	// AttentionGate says that queries come with a gate on what attention gives:
	// the query projection has, of each head, HeadDim rows of query, then as many
	// of gate.
	AttentionGate bool
	// MTPLayers is how many layers of its own the model's head for drafts has
	// (multi-token prediction): 0 or 1. Tables and names have them after the
	// others, as layers from Layers on.
	MTPLayers  int
	RMSNormEps float32
	// MaxPositions is the context length, stretched by YaRN where that is set.
	MaxPositions  int
	TieEmbeddings bool
	// Rope turns the first Rope.HeadDim elements of a head; the rest of it passes.
	Rope rope.Config
	// MaskTokenID is fed at mask slots; -1: none. A wedlm model of Qwen's
	// vocabularies (151936, 152064) that names none has 151665.
	MaskTokenID int32
	// EOSTokenIDs are those of config.json; generation_config.json may add to
	// them.
	EOSTokenIDs []int32
	// DType is torch_dtype (dtype since transformers 5), as written.
	DType string
	// Quantization says how weights in MLX's groups are read; nil: there are none.
	Quantization *Quantization
	// Published says how the weights of another method are read; nil: there are
	// none.
	Published *Published
}

// Experts is the shape of mixtures of experts.
type Experts struct {
	Count     int // experts of a layer
	PerToken  int // of them, for each row
	InnerSize int // of an expert
	// Renormalise makes the weights of a row's experts sum up to 1.
	Renormalise bool
	// SharedInnerSize is that of the expert that every row has; 0: there is none.
	SharedInnerSize int
	// Of every Step layers the last has experts, unless it is one of DenseLayers.
	Step        int
	DenseLayers []int
}

// Sparse reports whether a layer has experts in place of a dense MLP. Those of a
// head for drafts have them where the model has some.
func (c *Config) Sparse(layer int) bool {
	e := c.Experts
	return e != nil && (layer >= c.Layers || (layer+1)%e.Step == 0 && !slices.Contains(e.DenseLayers, layer))
}

// KVBytesPerToken is what one token's keys and values take in every layer of
// attention together: 2 · layers · KV heads · head dim · bytes, and scales for
// int8.
func (c *Config) KVBytesPerToken(t backend.KVType) int64 {
	return backend.Keys{Layers: c.Layers - c.RecurrentLayers(), KVHeads: c.KVHeads, HeadDim: c.HeadDim, DType: t}.TokenBytes()
}

// String is one line: the architecture and its sizes.
func (c *Config) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d layers, hidden %d, %d heads, %d kv heads of %d, mlp %d, vocab %d",
		c.Architecture, c.Layers, c.HiddenSize, c.Heads, c.KVHeads, c.HeadDim, c.IntermediateSize, c.VocabSize)
	if d := c.Delta; d != nil {
		fmt.Fprintf(&b, ", %d layers of DeltaNet with %d key heads of %d and %d value heads of %d", c.RecurrentLayers(), d.KeyHeads, d.KeyDim, d.ValueHeads, d.ValueDim)
	}
	if e := c.Experts; e != nil {
		fmt.Fprintf(&b, ", %d of %d experts of %d", e.PerToken, e.Count, e.InnerSize)
		if e.SharedInnerSize > 0 {
			fmt.Fprintf(&b, " and one of %d", e.SharedInnerSize)
		}
	}
	if c.TieEmbeddings {
		b.WriteString(", tied")
	}
	if c.MTPLayers > 0 {
		b.WriteString(", a head for drafts")
	}
	return b.String()
}
