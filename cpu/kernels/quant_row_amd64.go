package kernels

//go:noescape
func rowAffine8AVX2(dst *float32, src, scales, biases *byte, groups, group int)

//go:noescape
func rowAffine4AVX2(dst *float32, src, scales, biases *byte, groups, group int)

//go:noescape
func rowQ80AVX2(dst *float32, src *byte, blocks int)

//go:noescape
func rowQ40AVX2(dst *float32, src *byte, blocks int)

//go:noescape
func rowQ4KAVX2(dst *float32, src *byte, blocks int)

//go:noescape
func rowQ6KAVX2(dst *float32, src *byte, blocks int)

//go:noescape
func rowAffine8AVX512(dst *float32, src, scales, biases *byte, groups, group int)

//go:noescape
func rowAffine4AVX512(dst *float32, src, scales, biases *byte, groups, group int)

//go:noescape
func rowQ80AVX512(dst *float32, src *byte, blocks int)

//go:noescape
func rowQ40AVX512(dst *float32, src *byte, blocks int)

//go:noescape
func rowQ4KAVX512(dst *float32, src *byte, blocks int)

//go:noescape
func rowQ6KAVX512(dst *float32, src *byte, blocks int)

// avx2Rows decode in 8 lanes, avx512Rows in 16.
var (
	avx2Rows   = rowDecoders{rowAffine8AVX2, rowAffine4AVX2, rowQ80AVX2, rowQ40AVX2, rowQ4KAVX2, rowQ6KAVX2, nil}
	avx512Rows = rowDecoders{rowAffine8AVX512, rowAffine4AVX512, rowQ80AVX512, rowQ40AVX512, rowQ4KAVX512, rowQ6KAVX512, nil}
)
