package quant

import "windrow/backend"

// Encode makes the weight [out, in] that holds x, rounded to a type; group is the
// length of the affine types' groups, which must divide in.
func Encode(name string, dt backend.DType, out, in, group int, x []float32) backend.Tensor {
	t := backend.Tensor{Name: name, DType: dt, Shape: []int{out, in}, Data: make([]byte, out*dt.RowBytes(in))}
	if dt.Affine() {
		t.Group = group
		t.Scales, t.Biases = make([]byte, 2*out*in/group), make([]byte, 2*out*in/group)
		Affine(t.Data, t.Scales, t.Biases, x, dt.Bits(), group)
	} else {
		Blocks(t.Data, dt, x)
	}
	return t
}
