package kernels

import (
	"encoding/binary"

	"windrow/backend"
	"windrow/quant"
)

// unitsRow is quant.Row for types that quant.Unpack takes: it widens the numbers
// of a few groups at a time by the table's own kernel, bit for bit as quant.Row
// does, and faster. Products of numbers and scales are exact; one sum
// follows at most.
func unitsRow(widenInt8 func(dst []float32, src []byte, scale float32), dst []float32, t *backend.Tensor, o int) {
	u, ok := quant.UnitsOf(t.DType)
	if !ok {
		quant.Row(dst, t, o)
		return
	}
	const most = 256 // of a block of the largest types, or several small ones
	var numbers [most]byte
	var scales, biases [most / 16]float32
	in := t.Shape[len(t.Shape)-1]
	stride, block := t.DType.RowBytes(in), t.DType.BlockSize()
	src := t.Data[o*stride : (o+1)*stride]
	for at := 0; at < in; at += most {
		n := min(most, in-at)
		part := src[at/block*t.DType.BlockBytes():][:n/block*t.DType.BlockBytes()]
		quant.Unpack(t.DType, numbers[:n], scales[:], biases[:], 1, part, signRaise(u))
		if u.Less != 0 {
			for i := 0; i < n; i += 8 { // 128 more than the signed numbers
				binary.LittleEndian.PutUint64(numbers[i:], binary.LittleEndian.Uint64(numbers[i:])^0x8080808080808080)
			}
		}
		for g := range n / u.Group {
			x := dst[at+g*u.Group:][:u.Group]
			widenInt8(x, numbers[g*u.Group:][:u.Group], scales[g])
			if u.Bias {
				for i := range x {
					x[i] += biases[g]
				}
			}
		}
	}
}

// signRaise makes of numbers that stand for signed ones 128 more than those.
func signRaise(u quant.Units) byte {
	if u.Less == 0 {
		return 0
	}
	return 128 - u.Less
}
