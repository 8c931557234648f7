package kernels

import "windrow/backend"

// float8AVX2 widens n elements of F8_E4M3, a multiple of 16, and scales them.
//
//go:noescape
func float8AVX2(dst *float32, src *byte, n int, scale float32)

// decodeFloat8 is float8Row for tables that have decoders of rows, which all have
// AVX2 and F16C.
func decodeFloat8(dst []float32, t *backend.Tensor, o int) { float8Row(dst, t, o, float8AVX2) }
