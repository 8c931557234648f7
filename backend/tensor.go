package backend

import (
	"context"
	"fmt"
	"math/bits"
)

// DType is the element type of a tensor as a checkpoint stores it.
type DType uint8

// The element types. Floats are named as in safetensors. Affine4 and Affine8
// are MLX's groups with a scale and a bias each; the others are GGUF's blocks,
// named as there.
const (
	F32 DType = iota + 1
	F16
	BF16

	// Affine4 and Affine8 hold whole numbers q of 4 or 8 bits, packed into
	// little-endian uint32 words, low bits first; the weight is
	// q·scale + bias, with a scale and a bias for each group of a row.
	Affine4
	Affine8

	Q8_0 // blocks of 32: an f16 scale, 32 int8
	Q4_0 // blocks of 32: an f16 scale, 32 · 4 bits less 8
	Q4_K // blocks of 256: f16 scale and minimum, 8 · 6 bits of each, 256 · 4 bits
	Q6_K // blocks of 256: 256 · 6 bits less 32, 16 int8 scales, an f16 scale

	Q4_1   // blocks of 32: f16 scale and minimum, 32 · 4 bits
	Q5_0   // blocks of 32: an f16 scale, 32 · 5 bits less 16
	Q5_1   // blocks of 32: f16 scale and minimum, 32 · 5 bits
	Q2_K   // blocks of 256: 16 · 4 bits of scale and of minimum, 256 · 2 bits, an f16 scale of each
	Q3_K   // blocks of 256: 256 · 3 bits less 4, 16 · 6 bits of scale less 32, an f16 scale
	Q5_K   // blocks of 256: f16 scale and minimum, 8 · 6 bits of each, 256 · 5 bits
	IQ4_NL // blocks of 32: an f16 scale, 32 · 4 bits that number the values of a table
	IQ4_XS // blocks of 256: an f16 scale, 8 · 6 bits of scale less 32, 256 · 4 bits of the same table
	// F8_E4M3 holds floats of 8 bits, named as in safetensors: a sign, 4 bits of
	// exponent, 3 of fraction, no infinity. The weight is the float times a scale
	// for each group of a row.
	F8_E4M3
)

// DTypes lists the element types, in the order of their numbers.
func DTypes() (list []DType) {
	for d := F32; d.known(); d++ {
		list = append(list, d)
	}
	return list
}

// dtypes describes the storage of each element type: block elements take
// bytes bytes.
var dtypes = [...]struct {
	name         string
	block, bytes int
}{
	F32: {"f32", 1, 4}, F16: {"f16", 1, 2}, BF16: {"bf16", 1, 2},
	Affine4: {"affine4", 8, 4}, Affine8: {"affine8", 4, 4},
	Q8_0: {"q8_0", 32, 34}, Q4_0: {"q4_0", 32, 18}, Q4_K: {"q4_k", 256, 144}, Q6_K: {"q6_k", 256, 210},
	Q4_1: {"q4_1", 32, 20}, Q5_0: {"q5_0", 32, 22}, Q5_1: {"q5_1", 32, 24}, IQ4_NL: {"iq4_nl", 32, 18},
	Q2_K: {"q2_k", 256, 84}, Q3_K: {"q3_k", 256, 110}, Q5_K: {"q5_k", 256, 176}, IQ4_XS: {"iq4_xs", 256, 136},
	F8_E4M3: {"f8_e4m3", 1, 1},
}

func (d DType) known() bool { return d >= F32 && int(d) < len(dtypes) }

// Size is the number of bytes of one element of a float type; 0 for the
// quantised ones, whose elements have no bytes of their own.
func (d DType) Size() int {
	if !d.known() || d.Quantized() {
		return 0
	}
	return dtypes[d].bytes
}

// Quantized tells the types whose elements need a scale from floats: affine
// groups, GGUF's blocks, F8_E4M3.
func (d DType) Quantized() bool { return d.known() && d > BF16 }

// Affine tells the types that have scales and biases beside their data.
func (d DType) Affine() bool { return d == Affine4 || d == Affine8 }

// BlockSize is the number of elements that are stored together: 1 for floats,
// those of one uint32 word for affine types, those of a block for GGUF's. A
// row is a whole number of them.
func (d DType) BlockSize() int {
	if !d.known() {
		return 0
	}
	return dtypes[d].block
}

// BlockBytes is the number of bytes of BlockSize elements, scales and biases
// of affine groups not counted.
func (d DType) BlockBytes() int {
	if !d.known() {
		return 0
	}
	return dtypes[d].bytes
}

// RowBytes is the number of bytes of a row of that many elements, scales and
// biases of affine groups not counted; 0 where in is no multiple of
// BlockSize.
func (d DType) RowBytes(in int) int {
	if !d.known() || in < 0 || in%dtypes[d].block != 0 {
		return 0
	}
	return in / dtypes[d].block * dtypes[d].bytes
}

// Bits is the width of a stored number: 32, 16, 8, 6, 5, 4, 3 or 2, without what
// its block or group adds.
func (d DType) Bits() int {
	switch d {
	case F32:
		return 32
	case F16, BF16:
		return 16
	case Affine8, Q8_0, F8_E4M3:
		return 8
	case Q6_K:
		return 6
	case Q5_0, Q5_1, Q5_K:
		return 5
	case Affine4, Q4_0, Q4_1, Q4_K, IQ4_NL, IQ4_XS:
		return 4
	case Q3_K:
		return 3
	case Q2_K:
		return 2
	}
	return 0
}

func (d DType) String() string {
	if !d.known() {
		return fmt.Sprintf("dtype(%d)", uint8(d))
	}
	return dtypes[d].name
}

// Tensor is a weight as its checkpoint holds it: little-endian elements, row
// after row. Data, Scales and Biases may be memory-mapped, read-only and of
// any alignment.
type Tensor struct {
	Name  string
	DType DType
	// Shape is the logical one: [out, in] in elements, whatever the storage.
	Shape []int
	Data  []byte
	// Group is the length of an affine group along in: 32, 64 or 128. Of
	// F8_E4M3 it is any length; a row's last group may be shorter.
	Group int
	// Scales and Biases of affine types are [out, in/Group] in bf16; Scales of
	// F8_E4M3 are [out, in/Group rounded up] in f32.
	Scales, Biases []byte
	// Make gives the tensor with its bytes, for a weight that its checkpoint
	// stores in another form: until then Data, Scales and Biases are nil. It is
	// nil where they are there.
	Make func(ctx context.Context) (Tensor, error)
	// Split is how several devices may share the tensor, a bias of one
	// dimension too.
	Split Split
	// Sections are runs of the outputs, or the inputs, that Split cuts each by
	// itself: of every run a device has its share. nil: all is one run.
	Sections []int
	// Heads is of how many heads the outputs are where SplitOutputs cuts by heads: over
	// more devices than heads, a multiple of them, neighbours have the same one (Copies).
	// 0: outputs are no heads, or there are never more devices.
	Heads int
}

// Elements is the number of weights; 0 where the shape does not fit an int.
func (t Tensor) Elements() int {
	n := uint64(1)
	for _, d := range t.Shape {
		high, low := bits.Mul64(n, uint64(d))
		if d <= 0 || high != 0 || low > 1<<(bits.UintSize-2) {
			return 0
		}
		n = low
	}
	return int(n)
}

// Bytes is what the tensor takes, scales and biases included, or will take once
// it is made.
func (t Tensor) Bytes() int {
	if t.Make != nil {
		data, scales, biases := t.parts()
		return data + scales + biases
	}
	return len(t.Data) + len(t.Scales) + len(t.Biases)
}

// BitsPerWeight is what one weight takes, scales and biases included.
func (t Tensor) BitsPerWeight() float64 {
	if n := t.Elements(); n > 0 {
		return 8 * float64(t.Bytes()) / float64(n)
	}
	return 0
}

// Check compares the sizes of Data, Scales and Biases with type, shape and
// group. Backends call it on each tensor that they are given: after it every
// row is there.
func (t Tensor) Check() error {
	n := t.Elements()
	switch {
	case !t.DType.known():
		return fmt.Errorf("tensor %s: unknown %v", t.Name, t.DType)
	case len(t.Shape) == 0 || n == 0:
		return fmt.Errorf("tensor %s: shape %v, want positive dimensions", t.Name, t.Shape)
	case t.DType.Quantized() && len(t.Shape) < 2:
		return fmt.Errorf("tensor %s: %v of shape %v, want [out, in]", t.Name, t.DType, t.Shape)
	case t.Make != nil:
		return fmt.Errorf("tensor %s: has not been made from what its checkpoint stores", t.Name)
	}
	in := t.Shape[len(t.Shape)-1]
	if in%t.DType.BlockSize() != 0 {
		return fmt.Errorf("tensor %s: rows of %d, want a multiple of %d for %v", t.Name, in, t.DType.BlockSize(), t.DType)
	}
	if want := n / in * t.DType.RowBytes(in); len(t.Data) != want {
		return fmt.Errorf("tensor %s: %d bytes of %v, want %d for shape %v", t.Name, len(t.Data), t.DType, want, t.Shape)
	}
	if t.DType == F8_E4M3 {
		return t.checkFloat8()
	}
	if !t.DType.Affine() {
		if t.Group != 0 || len(t.Scales) != 0 || len(t.Biases) != 0 {
			return fmt.Errorf("tensor %s: %v with groups of %d, want none", t.Name, t.DType, t.Group)
		}
		return nil
	}
	if t.Group != 32 && t.Group != 64 && t.Group != 128 {
		return fmt.Errorf("tensor %s: groups of %d, want 32, 64 or 128", t.Name, t.Group)
	}
	if in%t.Group != 0 {
		return fmt.Errorf("tensor %s: rows of %d, want a multiple of the group %d", t.Name, in, t.Group)
	}
	if want := n / t.Group * 2; len(t.Scales) != want || len(t.Biases) != want {
		return fmt.Errorf("tensor %s: %d bytes of scales and %d of biases, want %d of each for shape %v in groups of %d",
			t.Name, len(t.Scales), len(t.Biases), want, t.Shape, t.Group)
	}
	return nil
}
