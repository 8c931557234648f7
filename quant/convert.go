package quant

import (
	"runtime"
	"sync"

	"windrow/backend"
)

// ConvertedType is the type as which a backend holds a weight of type d that it
// has no kernels for: Q5_0 and IQ4_NL become Q8_0 and Q3_K becomes Q6_K, without
// any loss. Q4_1, Q5_1, Q2_K, Q5_K, IQ4_XS and F8_E4M3 fit none of those types: they become
// bf16, each weight rounded once (by 2⁻⁹ of itself at most), or with exact f32.
// Other types stay as they are.
func ConvertedType(d backend.DType, exact bool) backend.DType {
	switch d {
	case backend.Q5_0, backend.IQ4_NL:
		return backend.Q8_0
	case backend.Q3_K:
		return backend.Q6_K
	case backend.Q4_1, backend.Q5_1, backend.Q2_K, backend.Q5_K, backend.IQ4_XS, backend.F8_E4M3:
		if exact {
			return backend.F32
		}
		return backend.BF16
	}
	return d
}

// ConvertedBytes is what Convert(t, exact) takes.
func ConvertedBytes(t backend.Tensor, exact bool) int {
	to := ConvertedType(t.DType, exact)
	if to == t.DType || len(t.Shape) == 0 {
		return t.Bytes()
	}
	in := t.Shape[len(t.Shape)-1]
	return t.Elements() / in * to.RowBytes(in)
}

// Convert makes t a tensor of ConvertedType, on every core; t itself where that is
// its type. t must have passed its Check.
func Convert(t backend.Tensor, exact bool) backend.Tensor {
	to := ConvertedType(t.DType, exact)
	if to == t.DType {
		return t
	}
	return ConvertTo(t, to)
}

// ConvertTo makes t a tensor of floats, each rounded once, or of another type that
// ConvertedType names for its own, on every core. t must have passed its Check.
func ConvertTo(t backend.Tensor, to backend.DType) backend.Tensor {
	in := t.Shape[len(t.Shape)-1]
	out, from, stride := t.Elements()/in, t.DType.RowBytes(in), to.RowBytes(in)
	y := backend.Tensor{Name: t.Name, DType: to, Shape: t.Shape, Data: make([]byte, out*stride), Split: t.Split}
	workers := min(runtime.GOMAXPROCS(0), out)
	var wg sync.WaitGroup
	for k := range workers {
		wg.Go(func() {
			var row []float32
			if !to.Quantized() {
				row = make([]float32, in)
			}
			for o := out * k / workers; o < out*(k+1)/workers; o++ {
				dst, src := y.Data[o*stride:(o+1)*stride], t.Data[o*from:(o+1)*from]
				switch to {
				case backend.Q8_0:
					toQ8_0(dst, src, t.DType)
				case backend.Q6_K:
					q3KToQ6_K(dst, src)
				default:
					Row(row, &t, o)
					Blocks(dst, to, row)
				}
			}
		})
	}
	wg.Wait()
	return y
}

// toQ8_0 makes blocks of Q8_0 of blocks of 32 that have a scale and no bias.
func toQ8_0(dst, src []byte, d backend.DType) {
	units, _ := UnitsOf(d)
	var scale [1]float32
	for size := d.BlockBytes(); len(src) >= size; dst, src = dst[34:], src[size:] {
		copy(dst[:2], src)
		numbers := dst[2:34]
		Unpack(d, numbers, scale[:], nil, 1, src[:size], 0)
		for i := range numbers {
			numbers[i] -= units.Less
		}
	}
}

// q3KToQ6_K makes blocks of Q6_K of blocks of Q3_K: scales are 6 bits of 8 there,
// numbers −4 to 3 of −32 to 31.
func q3KToQ6_K(dst, src []byte) {
	var numbers [256]byte
	var scales [16]float32
	for ; len(src) >= 110; dst, src = dst[210:], src[110:] {
		Unpack(backend.Q3_K, numbers[:], scales[:], nil, 1, src[:110], 32-4)
		clear(dst[:192])
		for j := range 16 {
			dst[192+j] = byte(int8(q3KScale(src[96:108], j)))
		}
		putSixes(dst, &numbers)
		copy(dst[208:210], src[108:110])
	}
}
