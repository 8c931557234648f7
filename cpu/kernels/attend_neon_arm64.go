package kernels

// Attention in register tiles. A 4×4 tile of scores has 16 multiply-adds to 8
// loads, a 4×16 tile of values 64 to 8 (LD1 of 64 bytes counted once). The
// tiles change no bit: see attend_neon_arm64.s. Not measured on hardware.

//go:noescape
func neonScores4x4Asm(s *float32, lds int, q, k *float32, tiles, d int)

//go:noescape
func neonScores1x8Asm(s, q, k *float32, tiles, d int)

//go:noescape
func neonScoreAsm(q, k *float32, d int) float32

//go:noescape
func neonValues4x16Asm(acc, p *float32, ldp int, v *float32, nk, d int)

//go:noescape
func neonValues1x64Asm(acc, p, v *float32, nk, d int)

//go:noescape
func neonValues1x4Asm(acc, p, v *float32, nk, d int)

//go:noescape
func neonValues1x1Asm(acc, p, v *float32, nk, d int)

func neonAttendScores(s []float32, lds int, q, k []float32, nq, nk, d int) {
	if nq <= 0 || nk <= 0 || d <= 0 {
		genericAttendScores(s, lds, q, k, nq, nk, d)
		return
	}
	s, q, k = first(s, (nq-1)*lds+nk), first(q, nq*d), first(k, nk*d)
	i := 0
	if nk >= 4 {
		for ; i+4 <= nq; i += 4 {
			neonScores4x4Asm(&s[i*lds], lds, &q[i*d], &k[0], nk/4, d)
			for r := i; r < i+4; r++ {
				neonScoresRow(s[r*lds:], q[r*d:], k, nk&^3, nk, d)
			}
		}
	}
	for ; i < nq; i++ {
		if nk >= 8 {
			neonScores1x8Asm(&s[i*lds], &q[i*d], &k[0], nk/8, d)
		}
		neonScoresRow(s[i*lds:], q[i*d:], k, nk&^7, nk, d)
	}
}

// neonScoresRow does keys [from, nk) of one query, the few that no tile took.
func neonScoresRow(s, q, k []float32, from, nk, d int) {
	for j := from; j < nk; j++ {
		s[j] = neonScoreAsm(&q[0], &k[j*d], d)
	}
}

func neonAttendValues(acc, p []float32, ldp int, v []float32, nq, nk, d int) {
	if nq <= 0 || nk <= 0 || d <= 0 {
		return
	}
	acc, p, v = first(acc, nq*d), first(p, (nq-1)*ldp+nk), first(v, nk*d)
	i := 0
	for ; i+4 <= nq; i += 4 {
		c := 0
		for ; c+16 <= d; c += 16 {
			neonValues4x16Asm(&acc[i*d+c], &p[i*ldp], ldp, &v[c], nk, d)
		}
		for r := i; c < d && r < i+4; r++ {
			neonValuesRow(acc[r*d:(r+1)*d], p[r*ldp:], v, c, nk, d)
		}
	}
	for ; i < nq; i++ {
		neonValuesRow(acc[i*d:(i+1)*d], p[i*ldp:], v, 0, nk, d)
	}
}

// neonValuesRow does columns [c, d) of one row.
func neonValuesRow(acc, p, v []float32, c, nk, d int) {
	for ; c+64 <= d; c += 64 {
		neonValues1x64Asm(&acc[c], &p[0], &v[c], nk, d)
	}
	for ; c+4 <= d; c += 4 {
		neonValues1x4Asm(&acc[c], &p[0], &v[c], nk, d)
	}
	for ; c < d; c++ {
		neonValues1x1Asm(&acc[c], &p[0], &v[c], nk, d)
	}
}
