package quant

import "math"

// Int8Scale returns the scale of a symmetric int8 group: max|x| / 127.
func Int8Scale(x []float32) float32 {
	var m float32
	for _, v := range x {
		if v < 0 {
			v = -v
		}
		m = max(m, v)
	}
	return m / 127
}

// Int8 quantises a group by its scale, rounding to nearest even.
func Int8(dst []int8, x []float32, scale float32) {
	if scale == 0 {
		clear(dst[:len(x)])
		return
	}
	inv := 1 / scale
	for i, v := range x {
		q := math.RoundToEven(float64(v * inv))
		dst[i] = int8(min(max(q, -127), 127))
	}
}
