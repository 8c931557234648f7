package kernels

//go:noescape
func avx512Scores2BF16(s0, s1, q *float32, k *byte, nk, d int, next *byte, pages int)

//go:noescape
func avx512Values2BF16(acc, p0, p1 *float32, v *byte, nk, d int)

// avx512NarrowScores and avx512NarrowValues are the entries of the table.
func avx512NarrowScores(s []float32, lds int, q []float32, keys []byte, nq, nk, d int, next []byte) {
	_, _, _ = s[(nq-1)*lds+(nk+7)&^7-1], q[nq*d-1], keys[(nk+7)&^7*2*d-1]
	for i := 0; i < nq; i += 2 {
		var ahead *byte
		pages := 0
		// A tile's 64 keys walk the 64 lines of each of next's pages.
		if i == 0 && len(next) >= 4096 {
			ahead, pages = &next[0], len(next)/4096
		}
		avx512Scores2BF16(&s[i*lds], &s[(i+1)*lds], &q[i*d], &keys[0], (nk+7)&^7, d, ahead, pages)
	}
}

func avx512NarrowValues(acc, p []float32, ldp int, values []byte, nq, nk, d int) {
	_, _, _ = acc[nq*d-1], p[(nq-1)*ldp+nk-1], values[nk*2*d-1]
	for i := 0; i < nq; i += 2 {
		avx512Values2BF16(&acc[i*d], &p[i*ldp], &p[(i+1)*ldp], &values[0], nk, d)
	}
}
