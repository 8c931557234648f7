package kernels

//go:noescape
func neonRowAffine8(dst *float32, src, scales, biases *byte, groups, group int)

//go:noescape
func neonRowAffine4(dst *float32, src, scales, biases *byte, groups, group int)

//go:noescape
func neonRowQ80(dst *float32, src *byte, blocks int)

//go:noescape
func neonRowQ40(dst *float32, src *byte, blocks int)

//go:noescape
func neonRowQ4K(dst *float32, src *byte, blocks int)

//go:noescape
func neonRowQ6K(dst *float32, src *byte, blocks int)

// neonRows decode in vectors of 128 bits.
var neonRows = rowDecoders{neonRowAffine8, neonRowAffine4, neonRowQ80, neonRowQ40, neonRowQ4K, neonRowQ6K, nil}
