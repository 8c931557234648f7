package kernels

// DeltaColumns are the columns of a part of DeltaRows.
const DeltaColumns = 32

// DeltaRows are rows of gated DeltaNet that follow each other, on two parts of states of
// DeltaColumns columns that share queries and keys: two value heads, or two halves of one.
// A call lets go of all slices.
type DeltaRows struct {
	Rows, Keys int
	Q, K       []float32 // [Rows, Keys]
	Parts      [2]DeltaPart
	// How many elements on the next row of S, V, D and O begins, and a row's Decay and Beta.
	StrideS, StrideV, StrideD, StrideO, StrideH int

	call deltaCall
}

// DeltaPart is what one of the two has: see DeltaStep.
type DeltaPart struct{ S, V, D, O, Decay, Beta []float32 }

// deltaCall is what the assembly of DeltaRows works through. Strides are in bytes; offsets
// are named beside the code.
type deltaCall struct {
	s           [2]*float32
	lds         int
	q, k        *float32
	ldk         int
	v           [2]*float32
	ldv         int
	d           [2]*float32
	ldd         int
	o           [2]*float32
	ldo         int
	decay, beta [2]*float32
	ldh         int
	keys, rows  int
}

// rowsAll checks what the assembly reads and writes.
func (c *deltaCode) rowsAll(y *DeltaRows) {
	if y.Rows <= 0 || y.Keys <= 0 {
		return
	}
	_, _ = y.Q[y.Rows*y.Keys-1], y.K[y.Rows*y.Keys-1]
	call := &y.call
	call.q, call.k, call.ldk, call.keys, call.rows = &y.Q[0], &y.K[0], 4*y.Keys, y.Keys, y.Rows
	call.lds, call.ldv, call.ldd, call.ldo, call.ldh = 4*y.StrideS, 4*y.StrideV, 4*y.StrideD, 4*y.StrideO, 4*y.StrideH
	const n = DeltaColumns - 1
	last := y.Rows - 1
	for i := range y.Parts {
		p := &y.Parts[i]
		_, _, _, _ = p.S[(y.Keys-1)*y.StrideS+n], p.V[last*y.StrideV+n], p.D[last*y.StrideD+n], p.O[last*y.StrideO+n]
		_, _ = p.Decay[last*y.StrideH], p.Beta[last*y.StrideH]
		call.s[i], call.v[i], call.d[i], call.o[i], call.decay[i], call.beta[i] = &p.S[0], &p.V[0], &p.D[0], &p.O[0], &p.Decay[0], &p.Beta[0]
	}
	c.rows(call)
	// Nothing is held of a forward or a sequence that may be closed next.
	y.Q, y.K, y.Parts, y.call = nil, nil, [2]DeltaPart{}, deltaCall{}
}

// tapsRowsAll checks what the assembly of TapsRows reads and writes.
func (c *deltaCode) tapsRowsAll(dst []float32, n, rows int, x []float32, ldx int, w []float32, taps, ldw int) {
	if n <= 0 || rows <= 0 {
		return
	}
	_, _, _ = dst[rows*n-1], x[(rows+taps-2)*ldx+n-1], w[(taps-1)*ldw+n-1]
	m := n / c.lanes * c.lanes
	if m > 0 {
		c.tapsRows(&dst[0], n, rows, &x[0], ldx, &w[0], taps, ldw, m)
	}
	for r := range rows {
		for i := m; i < n; i++ {
			sum := float32(0)
			for t := range taps {
				sum = mulAdd32(x[(r+t)*ldx+i], w[t*ldw+i], sum)
			}
			dst[r*n+i] = sum
		}
	}
}

// foldRowsAll checks what the assembly of FoldRows reads and writes.
func (c *deltaCode) foldRowsAll(dst, src []float32, columns, keys, rows int, k []float32, ldk int, d []float32, ldd int, alpha []float32, ldh int) {
	if columns <= 0 || keys <= 0 || rows <= 0 {
		return
	}
	_, _, _, _, _ = dst[keys*columns-1], src[keys*columns-1], k[(rows-1)*ldk+keys-1], d[(rows-1)*ldd+columns-1], alpha[(rows-1)*ldh]
	for at := 0; at+DeltaColumns <= columns; at += DeltaColumns {
		c.foldRows(&dst[at], &src[at], 4*columns, &k[0], 4*ldk, &d[at], 4*ldd, &alpha[0], 4*ldh, keys, rows)
	}
}
