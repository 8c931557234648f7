package metal

import "windrow/backend"

// weight is a matrix [out, in] in device memory, as the file stores it.
type weight struct {
	dtype          backend.DType
	out, in        int
	group          int  // affine: elements that share a scale and a bias
	data           view // rows of dtype.RowBytes(in) bytes
	scales, biases view // affine: bf16, [out, in/group]
}

// linear is a weight with a bias, f32 [out], whose buffer is nil where there is
// none.
type linear struct {
	weight
	bias view
}
