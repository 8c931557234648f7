package kernels

import (
	"math"
	"unsafe"
)

// tileAttention is what tileAttend works through: all pages that a block of
// queries sees, in ascending order. Memory that moves not; offsets are in bytes,
// and named in attend_amx_amd64.s.
type tileAttention struct {
	cfg            *tileConfig
	pages          unsafe.Pointer // [count] addresses of pages: 64 keys, then the values [head dim, 64]
	count          int
	krow, values   int            // bytes of a key; from a page's keys to its values
	q              unsafe.Pointer // [groups][steps] B tiles
	qrow, qstep    int
	steps          int            // of 32 elements of the head dimension
	acc, peak, sum unsafe.Pointer // [groups][head dim, 16], [groups, 16] twice
	seen           unsafe.Pointer // [groups, 16] int32: how many keys a query sees
	s, p           unsafe.Pointer // scores [64, 16] and weights [32, 16] of pairs
	groups         int
	qgroup, agroup int
}

//go:noescape
func tileAttend(t *tileAttention)

// amxAttendPages is the table's entry: queries are columns, 16 a tile, keys the
// A operand as they are stored, and weights the B operand of the values.
func amxAttendPages(a *PageAttention, s *Scratch) {
	n := min(a.Queries, tileSpan)
	groups := (a.Queries + tileSpan - 1) / tileSpan
	steps := a.Dim / tileStep
	columns := groups * tileSpan

	accSize := groups * a.Dim * tileSpan
	mem := align64(Grown(&s.attend, accSize+2*columns+PageSlots*tileSpan*3/2+columns*a.Dim/2+columns+a.Dim*tileSpan+32))
	cut := func(n int) (part []float32) {
		part, mem = mem[:n], mem[n:]
		return part
	}
	acc, peak, sum := cut(accSize), cut(columns), cut(columns)
	scores, weights, packed, seen := cut(PageSlots*tileSpan), cut(PageSlots*tileSpan/2), cut(columns*a.Dim/2), cut(columns)
	transposed := cut(a.Dim * tileSpan)
	clear(acc)
	clear(sum)
	clear(scores) // columns without a query stay as they are
	counts := unsafe.Slice((*int32)(unsafe.Pointer(&seen[0])), columns)
	for i := range columns {
		peak[i] = float32(math.Inf(-1))
		counts[i] = a.Seen[min(i, a.Queries-1)]
	}
	clear(packed)
	tiles := unsafe.Slice((*uint16)(unsafe.Pointer(&packed[0])), 2*len(packed))
	for g := range groups {
		part := a.Q[g*tileSpan*a.Dim:]
		rows := min(tileSpan, a.Queries-g*tileSpan)
		if rows < n { // the last of several: whole tiles, of which some columns are 0
			copy(transposed, part[:rows*a.Dim])
			clear(transposed[rows*a.Dim:])
			part = transposed
		}
		tilePack(&tiles[g*tileSpan*a.Dim], &part[0], 4*a.Dim, n, steps)
	}
	cfg := tileConfig{palette: 1}
	cfg.many(n)
	t := tileAttention{
		cfg: &cfg, pages: unsafe.Pointer(&a.Pages[0]), count: len(a.Pages),
		krow: 2 * a.Dim, values: 2 * a.Dim * PageSlots,
		q: unsafe.Pointer(&packed[0]), qrow: 4 * n, qstep: 64 * n, steps: steps,
		acc: unsafe.Pointer(&acc[0]), peak: unsafe.Pointer(&peak[0]), sum: unsafe.Pointer(&sum[0]), seen: unsafe.Pointer(&seen[0]),
		s: unsafe.Pointer(&scores[0]), p: unsafe.Pointer(&weights[0]),
		groups: groups, qgroup: 2 * tileSpan * a.Dim, agroup: 4 * tileSpan * a.Dim,
	}
	tileAttend(&t)
	for g := range groups {
		rows := min(tileSpan, a.Queries-g*tileSpan)
		tileTranspose(&transposed[0], 4*a.Dim, &acc[g*a.Dim*tileSpan], 4*tileSpan, a.Dim, rows)
		for i := range rows {
			at := g*tileSpan + i
			out := a.Out(at)
			copy(out, transposed[i*a.Dim:(i+1)*a.Dim])
			a.Scale(out, 1/sum[at])
		}
	}
}
