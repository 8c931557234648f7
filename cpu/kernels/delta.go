package kernels

import "math"

// mulAdd32 is x·y + z, rounded once. The product is exact in float64; the sum is rounded
// there to odd, so that rounding it to float32 is as if it were the first time (Boldo and
// Melquiond, 2008).
func mulAdd32(x, y, z float32) float32 {
	p, c := float64(x)*float64(y), float64(z)
	s := p + c
	// The error of the sum (Knuth's two-sum).
	b := s - p
	e := float64(p-float64(s-b)) + float64(c-b)
	if bits := math.Float64bits(s); e != 0 && bits&1 == 0 && !math.IsInf(s, 0) {
		if (e > 0) == (s > 0) {
			bits++
		} else {
			bits--
		}
		s = math.Float64frombits(bits)
	}
	return float32(s)
}

func genericExps(x []float64) {
	for i, v := range x {
		x[i] = math.Exp(v)
	}
}

func genericTaps(dst []float32, x [][]float32, w []float32, stride int) { taps(dst, x, w, stride, 0) }

// taps is Taps of the channels from one on.
func taps(dst []float32, x [][]float32, w []float32, stride, first int) {
	clear(dst[first:])
	for t, row := range x {
		tap := w[t*stride:]
		for c := first; c < len(dst); c++ {
			dst[c] = mulAdd32(row[c], tap[c], dst[c])
		}
	}
}

func genericDeltaFold(dst, src, k, d []float32, alpha float32) {
	deltaFold(dst, src, k, d, alpha, 0)
}

func genericDeltaStep(s, q, k, v, d, o []float32, alpha, beta float32) {
	deltaStep(s, q, k, v, d, o, alpha, beta, 0)
}

// deltaFold is DeltaFold of the columns from one on.
func deltaFold(dst, src, k, d []float32, alpha float32, first int) {
	n := len(d)
	for i, key := range k {
		to, from := dst[i*n:(i+1)*n], src[i*n:(i+1)*n]
		for c := first; c < n; c++ {
			to[c] = mulAdd32(key, d[c], float32(alpha*from[c]))
		}
	}
}

// deltaStep is DeltaStep of the columns from one on.
func deltaStep(s, q, k, v, d, o []float32, alpha, beta float32, first int) {
	n := len(v)
	clear(d[first:n])
	for i, key := range k {
		row := s[i*n : (i+1)*n]
		for c := first; c < n; c++ {
			d[c] = mulAdd32(row[c], key, d[c])
		}
	}
	for c := first; c < n; c++ {
		d[c] = beta * float32(v[c]-float32(alpha*d[c]))
	}
	clear(o[first:n])
	for i, key := range k {
		row := s[i*n : (i+1)*n]
		for c := first; c < n; c++ {
			row[c] = mulAdd32(key, d[c], float32(alpha*row[c]))
			o[c] = mulAdd32(row[c], q[i], o[c])
		}
	}
}
