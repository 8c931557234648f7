package backend

import "fmt"

// parts is how many bytes data, scales and biases take by type, shape and
// group; zeros where the shape does not fit an int.
func (t Tensor) parts() (data, scales, biases int) {
	n := t.Elements()
	if n == 0 {
		return 0, 0, 0
	}
	in := t.Shape[len(t.Shape)-1]
	out := n / in
	data = out * t.DType.RowBytes(in)
	switch {
	case t.Group <= 0:
	case t.DType.Affine():
		scales = out * (in / t.Group) * 2
		biases = scales
	case t.DType == F8_E4M3:
		scales = out * t.Groups() * 4
	}
	return data, scales, biases
}

// Groups is how many groups a row has; 0 for types without.
func (t Tensor) Groups() int {
	if t.Group <= 0 || len(t.Shape) == 0 {
		return 0
	}
	return (t.Shape[len(t.Shape)-1] + t.Group - 1) / t.Group
}

// Allocated is the tensor with zeroed Data, Scales and Biases of its own.
func (t Tensor) Allocated() Tensor {
	data, scales, biases := t.parts()
	t.Make = nil
	t.Data, t.Scales, t.Biases = make([]byte, data), make([]byte, scales), make([]byte, biases)
	return t
}

// Part is number i of a stack [n, out, in], which Check has checked: its rows, not a
// copy of them.
func (t Tensor) Part(i int) Tensor {
	out := t.Shape[1]
	stack := t
	stack.Shape = []int{t.Shape[0] * out, t.Shape[2]}
	part := stack.Rows(i*out, (i+1)*out)
	part.Name = fmt.Sprintf("%s[%d]", t.Name, i)
	return part
}

// Rows is rows [from, to) of a matrix, which Check has checked, not a copy of them.
func (t Tensor) Rows(from, to int) Tensor {
	out := t.Shape[0]
	cut := func(b []byte) []byte {
		n := len(b) / out
		return b[from*n : to*n : to*n]
	}
	t.Shape = []int{to - from, t.Shape[1]}
	t.Data, t.Scales, t.Biases = cut(t.Data), cut(t.Scales), cut(t.Biases)
	return t
}

// checkFloat8 is the part of Check that is for F8_E4M3 alone.
func (t Tensor) checkFloat8() error {
	if t.Group <= 0 {
		return fmt.Errorf("tensor %s: groups of %d, want a positive length for %v", t.Name, t.Group, t.DType)
	}
	if _, want, _ := t.parts(); len(t.Scales) != want || len(t.Biases) != 0 {
		return fmt.Errorf("tensor %s: %d bytes of scales and %d of biases, want %d and none for shape %v in groups of %d",
			t.Name, len(t.Scales), len(t.Biases), want, t.Shape, t.Group)
	}
	return nil
}
