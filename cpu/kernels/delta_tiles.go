package kernels

// deltaTile is assembly for some columns of a state whose rows are stride elements apart.
// What n keys and the columns need must be there.
type deltaTile struct {
	columns int
	step    func(s *float32, stride int, q, k, v, d, o *float32, n int, alpha, beta float32)
	fold    func(dst, src *float32, stride int, k, d *float32, n int, alpha float32)
}

// deltaCode is one instruction set's assembly for gated DeltaNet.
type deltaCode struct {
	tiles [2]deltaTile // the wider first
	lanes int          // taps takes multiples of them
	// taps is Taps of n > 0 channels and taps > 0 rows.
	taps func(dst *float32, x *[]float32, taps int, w *float32, stride, n int)
	// rows is DeltaRows of rows and keys > 0, tapsRows TapsRows of n > 0 channels, a multiple
	// of the lanes, and rows > 0, foldRows FoldRows of DeltaColumns columns with strides in
	// bytes; nil: there is none.
	rows     func(c *deltaCall)
	foldRows func(dst, src *float32, lds int, k *float32, ldk int, d *float32, ldd int, alpha *float32, ldh int, keys, rows int)
	tapsRows func(dst *float32, ldd, rows int, x *float32, ldx int, w *float32, taps, ldw, n int)
	// exps is Exps of n > 0 elements between -expsFar and expsFar, n a multiple of half of the
	// lanes; nil: there is none.
	exps func(x *float64, n int)
}

// expsFar is how far from 0 the assembly of Exps takes elements: their exponentials are normal.
const expsFar = 700

// of puts the code into a table. Columns and elements that no tile takes are left to the
// reference, whose bits are the same.
func (c *deltaCode) of(k *VectorKernels) {
	k.Taps, k.DeltaFold, k.DeltaStep, k.Exps = c.tapsAll, c.foldAll, c.stepAll, genericExps
	if c.exps != nil {
		k.Exps = c.expsAll
	}
	if c.rows != nil {
		k.DeltaRows, k.TapsRows, k.FoldRows = c.rowsAll, c.tapsRowsAll, c.foldRowsAll
	}
}

func (c *deltaCode) tapsAll(dst []float32, x [][]float32, w []float32, stride int) {
	n := len(dst)
	m := n / c.lanes * c.lanes
	if m == 0 || len(x) == 0 {
		genericTaps(dst, x, w, stride)
		return
	}
	for _, row := range x {
		_ = row[n-1]
	}
	_ = w[(len(x)-1)*stride+n-1]
	c.taps(&dst[0], &x[0], len(x), &w[0], stride, m)
	if m < n {
		taps(dst, x, w, stride, m)
	}
}

func (c *deltaCode) foldAll(dst, src, k, d []float32, alpha float32) {
	n, at := len(d), 0
	if n == 0 || len(k) == 0 {
		return
	}
	_, _ = dst[len(k)*n-1], src[len(k)*n-1]
	for i := range c.tiles {
		for t := &c.tiles[i]; at+t.columns <= n; at += t.columns {
			t.fold(&dst[at], &src[at], n, &k[0], &d[at], len(k), alpha)
		}
	}
	if at < n {
		deltaFold(dst, src, k, d, alpha, at)
	}
}

func (c *deltaCode) stepAll(s, q, k, v, d, o []float32, alpha, beta float32) {
	n, at := len(v), 0
	if n == 0 || len(k) == 0 {
		genericDeltaStep(s, q, k, v, d, o, alpha, beta)
		return
	}
	_, _, _, _ = s[len(k)*n-1], q[len(k)-1], d[n-1], o[n-1]
	for i := range c.tiles {
		for t := &c.tiles[i]; at+t.columns <= n; at += t.columns {
			t.step(&s[at], n, &q[0], &k[0], &v[at], &d[at], &o[at], len(k), alpha, beta)
		}
	}
	if at < n {
		deltaStep(s, q, k, v, d, o, alpha, beta, at)
	}
}

func (c *deltaCode) expsAll(x []float64) {
	n := len(x) / (c.lanes / 2) * (c.lanes / 2)
	for _, v := range x[:n] {
		if !(v >= -expsFar && v <= expsFar) {
			n = 0
			break
		}
	}
	if n > 0 {
		c.exps(&x[0], n)
	}
	genericExps(x[n:])
}
