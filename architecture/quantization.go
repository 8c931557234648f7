package architecture

import (
	"fmt"

	"windrow/backend"
)

// Quantization is the entry "quantization" of a config.json, as mlx-lm writes
// it: affine groups, and layers that differ.
type Quantization struct {
	AffineFormat
	// Layers holds, by module name, a format of its own; nil there means that
	// the module is not quantised.
	Layers map[string]*AffineFormat
}

// AffineFormat is a width and a group length.
type AffineFormat struct {
	Bits  int // 4 or 8
	Group int // 32, 64 or 128
}

func (a AffineFormat) String() string { return fmt.Sprintf("%d bits in groups of %d", a.Bits, a.Group) }

// DType is the tensor type of the format.
func (a AffineFormat) DType() backend.DType {
	if a.Bits == 8 {
		return backend.Affine8
	}
	return backend.Affine4
}

// Of is the format of a module; false where it is not quantised.
func (q *Quantization) Of(module string) (AffineFormat, bool) {
	if q == nil {
		return AffineFormat{}, false
	}
	if layer, ok := q.Layers[module]; ok {
		if layer == nil {
			return AffineFormat{}, false
		}
		return *layer, true
	}
	return q.AffineFormat, true
}

// Published is how the weights of a checkpoint are quantised that was made for
// the engines of GPUs: the entry quantization_config of a config.json as AutoAWQ,
// AutoGPTQ and GPTQModel, transformers (fp8) and compressed-tensors write it.
// Which modules are quantised is told by the tensors, not here.
type Published struct {
	Method string // awq, gptq, fp8 or compressed-tensors
	// Bits is the width of the whole numbers; 0 where weights are F8_E4M3.
	Bits int
	// Group is how many inputs share a scale; -1: all of a row.
	Group int
	// Symmetric weights have their zero in the middle.
	Symmetric bool
	// ZeroPlus is added to stored zeros.
	ZeroPlus int
	// ActOrder says that groups may not lie one after the other.
	ActOrder bool
	// BlockOutputs and BlockInputs share a scale of F8_E4M3; -1: all.
	BlockOutputs, BlockInputs int
}

// String names the form, for people: "awq: 4 bits in groups of 128 with zero
// points".
func (p *Published) String() string {
	all := func(n int) string {
		if n < 0 {
			return "all"
		}
		return fmt.Sprint(n)
	}
	if p.Bits == 0 {
		return fmt.Sprintf("%s: e4m3, a scale for %s outputs by %s inputs", p.Method, all(p.BlockOutputs), all(p.BlockInputs))
	}
	zeros := "with zero points"
	if p.Symmetric {
		zeros = "symmetric"
	}
	return fmt.Sprintf("%s: %d bits in groups of %s, %s", p.Method, p.Bits, all(p.Group), zeros)
}
