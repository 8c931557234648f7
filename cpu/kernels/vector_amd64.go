package kernels

// vectorCode is one instruction set's assembly for VectorKernels. It works on
// bare pointers with n > 0 elements; table puts the length checks in front, in
// one place for all instruction sets.
type vectorCode struct {
	widenBF16, widenF16 func(dst *float32, src *byte, n int)
	narrowBF16          func(dst *byte, src *float32, n int)
	widenInt8           func(dst *float32, src *byte, n int, scale float32)
	sumSquares          func(x *float32, n int) float32
	scaleMul            func(dst, x, w *float32, n int, s float32)
	add                 func(dst, x *float32, n int)
	scale               func(x *float32, n int, s float32)
	rotate              func(a, b, cos, sin *float32, n int)
	siluMul             func(dst, gate, up *float32, n int)
	maximum             func(x *float32, n int) float32
	expSum              func(x *float32, n int, shift float32) float32
	expSums             func(x *float32, n int, shift float32) (s0, s1 float32)

	// scores takes scoreRows queries at once and nk in multiples of 4, values
	// valueRows. scores1 and values1 take one query, any nk.
	scoreRows, valueRows int

	scores  func(s *float32, lds int, q, k *float32, nk, d int)
	scores1 func(s, q, k *float32, nk, d int)
	values  func(acc, p *float32, ldp int, v *float32, nk, d int)
	values1 func(acc, p, v *float32, nk, d int)

	// normRows sets rows of n elements to x·num/√(Σx²/div + eps)·w, w nil for none, with the
	// bits of the operations one by one, and addRows adds rows of n, times weights, to those
	// of a list; list and weights may be nil. n is a multiple of rowLanes. nil: there is none.
	normRows func(dst *float32, ldd int, x *float32, ldx int, w *float32, n, rows int, div, eps, num float64)
	addRows  func(dst *float32, ldd int, list *int, x *float32, n int, weights *float32, rows int)
	rowLanes int

	firstAtLeast func(x *float32, n int, bar float32) int // nil: there is none
	gateDiv      func(x, gate *float32, n int)            // nil: there is none

	delta *deltaCode
}

// table returns the kernels that run c, with slices checked: what is too short
// panics here, as it does in the generic kernels, instead of being overrun.
func (c *vectorCode) table() VectorKernels {
	widen := func(code func(*float32, *byte, int)) func([]float32, []byte) {
		return func(dst []float32, src []byte) {
			if n := len(dst); n > 0 {
				_ = src[2*n-1]
				code(&dst[0], &src[0], n)
			}
		}
	}
	k := VectorKernels{
		WidenBF16: widen(c.widenBF16),
		WidenF16:  widen(c.widenF16),
		NarrowBF16: func(dst []byte, src []float32) {
			if n := len(src); n > 0 {
				_ = dst[2*n-1]
				c.narrowBF16(&dst[0], &src[0], n)
			}
		},
		WidenInt8: func(dst []float32, src []byte, scale float32) {
			if n := len(dst); n > 0 {
				_ = src[n-1]
				c.widenInt8(&dst[0], &src[0], n, scale)
			}
		},
		SumSquares: func(x []float32) float32 {
			if len(x) == 0 {
				return 0
			}
			return c.sumSquares(&x[0], len(x))
		},
		ScaleMul: func(dst, x, w []float32, s float32) {
			if n := len(x); n > 0 {
				_, _ = dst[n-1], w[n-1]
				c.scaleMul(&dst[0], &x[0], &w[0], n, s)
			}
		},
		Add: func(dst, x []float32) {
			if n := len(x); n > 0 {
				_ = dst[n-1]
				c.add(&dst[0], &x[0], n)
			}
		},
		Scale: func(x []float32, s float32) {
			if n := len(x); n > 0 {
				c.scale(&x[0], n, s)
			}
		},
		Rotate: func(x, cos, sin []float32) {
			if n := len(x) / 2; n > 0 {
				_, _ = cos[n-1], sin[n-1]
				c.rotate(&x[0], &x[n], &cos[0], &sin[0], n)
			}
		},
		SiluMul: func(dst, gate, up []float32) {
			if n := len(gate); n > 0 {
				_, _ = dst[n-1], up[n-1]
				c.siluMul(&dst[0], &gate[0], &up[0], n)
			}
		},
		Maximum: func(x []float32) float32 {
			if len(x) == 0 {
				return genericMaximum(x)
			}
			return c.maximum(&x[0], len(x))
		},
		ExpSum: func(x []float32, shift float32) float32 {
			if len(x) == 0 {
				return 0
			}
			return c.expSum(&x[0], len(x), shift)
		},
		ExpSums: func(x []float32, shift float32) (s0, s1 float32) {
			if len(x) == 0 {
				return 0, 0
			}
			return c.expSums(&x[0], len(x), shift)
		},
		AttendScores: c.attendScores,
		AttendValues: c.attendValues,
	}
	if c.normRows != nil {
		k.NormRows, k.AddRows = c.normAll, c.addAll
	}
	k.FirstAtLeast = genericFirstAtLeast
	if c.firstAtLeast != nil {
		k.FirstAtLeast = func(x []float32, bar float32) int {
			if len(x) == 0 {
				return 0
			}
			return c.firstAtLeast(&x[0], len(x), bar)
		}
	}
	if c.gateDiv != nil {
		k.GateDiv = func(x, gate []float32) {
			if n := len(x); n > 0 {
				_ = gate[n-1]
				c.gateDiv(&x[0], &gate[0], n)
			}
		}
	}
	c.delta.of(&k)
	return k
}

// normAll leaves rows of other lengths than the assembly takes to the operations one by one.
func (c *vectorCode) normAll(dst []float32, ldd int, x []float32, ldx int, w []float32, n, rows int, div, eps, num float64) bool {
	if n <= 0 || n%c.rowLanes != 0 || rows <= 0 {
		return false
	}
	_, _ = dst[(rows-1)*ldd+n-1], x[(rows-1)*ldx+n-1]
	var weights *float32
	if w != nil {
		_ = w[n-1]
		weights = &w[0]
	}
	c.normRows(&dst[0], ldd, &x[0], ldx, weights, n, rows, div, eps, num)
	return true
}

// attendScores runs full tiles of queries and keys, then what is left one query
// at a time. A score's bits do not depend on which of the two made it.
func (c *vectorCode) attendScores(s []float32, lds int, q, k []float32, nq, nk, d int) {
	if nq <= 0 || nk <= 0 {
		return
	}
	if d <= 0 {
		genericAttendScores(s, lds, q, k, nq, nk, d)
		return
	}
	_, _, _ = s[(nq-1)*lds+nk-1], q[nq*d-1], k[nk*d-1]
	tiled, i := nk&^3, 0
	for ; i+c.scoreRows <= nq && tiled > 0; i += c.scoreRows {
		c.scores(&s[i*lds], lds, &q[i*d], &k[0], tiled, d)
		for r := i; tiled < nk && r < i+c.scoreRows; r++ {
			c.scores1(&s[r*lds+tiled], &q[r*d], &k[tiled*d], nk-tiled, d)
		}
	}
	for ; i < nq; i++ {
		c.scores1(&s[i*lds], &q[i*d], &k[0], nk, d)
	}
}

func (c *vectorCode) attendValues(acc, p []float32, ldp int, v []float32, nq, nk, d int) {
	if nq <= 0 || nk <= 0 || d <= 0 {
		return
	}
	_, _, _ = acc[nq*d-1], p[(nq-1)*ldp+nk-1], v[nk*d-1]
	i := 0
	for ; i+c.valueRows <= nq; i += c.valueRows {
		c.values(&acc[i*d], &p[i*ldp], ldp, &v[0], nk, d)
	}
	for ; i < nq; i++ {
		c.values1(&acc[i*d], &p[i*ldp], &v[0], nk, d)
	}
}

// addAll is to addRows what normAll is to normRows.
func (c *vectorCode) addAll(dst []float32, ldd int, list []int, x []float32, n int, weights []float32, rows int) bool {
	if n <= 0 || n%c.rowLanes != 0 || rows <= 0 {
		return false
	}
	_ = x[rows*n-1]
	var places *int
	if list != nil {
		for _, r := range list[:rows] {
			_ = dst[r*ldd+n-1]
		}
		places = &list[0]
	} else {
		_ = dst[(rows-1)*ldd+n-1]
	}
	var by *float32
	if weights != nil {
		_ = weights[rows-1]
		by = &weights[0]
	}
	c.addRows(&dst[0], ldd, places, &x[0], n, by, rows)
	return true
}
