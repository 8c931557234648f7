package kernels

import (
	"encoding/binary"
	"math"

	"windrow/backend"
	"windrow/quant"
)

// float8Row is quant.Row for F8_E4M3, with the same bits: whole sixteens of a
// group by wide, the rest as there.
func float8Row(dst []float32, t *backend.Tensor, o int, wide func(dst *float32, src *byte, n int, scale float32)) {
	in, groups := t.Shape[1], t.Groups()
	dst, src, scales := dst[:in], t.Data[o*in:(o+1)*in], t.Scales[4*o*groups:4*(o+1)*groups]
	for g := range groups {
		from := g * t.Group
		to := min(from+t.Group, in)
		if n := (to - from) &^ 15; n > 0 {
			wide(&dst[from], &src[from], n, math.Float32frombits(binary.LittleEndian.Uint32(scales[4*g:])))
			from += n
		}
		quant.Float8ToF32(dst[from:to], src[from:to], scales[4*g:4*g+4], t.Group)
	}
}
