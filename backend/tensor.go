package backend

import "fmt"

// DType is the element type of a tensor as a checkpoint stores it.
type DType uint8

// The element types, named as in safetensors.
const (
	F32 DType = iota + 1
	F16
	BF16
)

// Size is the number of bytes of one element.
func (d DType) Size() int {
	switch d {
	case F32:
		return 4
	case F16, BF16:
		return 2
	}
	return 0
}

func (d DType) String() string {
	switch d {
	case F32:
		return "f32"
	case F16:
		return "f16"
	case BF16:
		return "bf16"
	}
	return fmt.Sprintf("dtype(%d)", uint8(d))
}

// Tensor is a weight as its checkpoint holds it: little-endian elements, row
// after row. Data may be memory-mapped, read-only and of any alignment.
type Tensor struct {
	Name  string
	DType DType
	Shape []int
	Data  []byte
}
