package architecture

import (
	"fmt"
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
	RMSNormEps       float32
	// MaxPositions is the context length, stretched by YaRN where that is set.
	MaxPositions  int
	TieEmbeddings bool
	Rope          rope.Config
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

// KVBytesPerToken is what one token's keys and values take in every layer
// together: 2 · layers · KV heads · head dim · bytes, and scales for int8.
func (c *Config) KVBytesPerToken(t backend.KVType) int64 {
	return backend.Keys{Layers: c.Layers, KVHeads: c.KVHeads, HeadDim: c.HeadDim, DType: t}.TokenBytes()
}

// String is one line: the architecture and its sizes.
func (c *Config) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d layers, hidden %d, %d heads, %d kv heads of %d, mlp %d, vocab %d",
		c.Architecture, c.Layers, c.HiddenSize, c.Heads, c.KVHeads, c.HeadDim, c.IntermediateSize, c.VocabSize)
	if c.TieEmbeddings {
		b.WriteString(", tied")
	}
	return b.String()
}
