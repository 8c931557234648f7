package cpu

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
func amxAttendPages(a *pageAttention, s *kernelScratch) {
	n := min(a.queries, tileSpan)
	groups := (a.queries + tileSpan - 1) / tileSpan
	steps := a.dim / tileStep
	columns := groups * tileSpan

	accSize := groups * a.dim * tileSpan
	mem := align64(grown(&s.attend, accSize+2*columns+pageSlots*tileSpan*3/2+columns*a.dim/2+columns+a.dim*tileSpan+32))
	cut := func(n int) (part []float32) {
		part, mem = mem[:n], mem[n:]
		return part
	}
	acc, peak, sum := cut(accSize), cut(columns), cut(columns)
	scores, weights, packed, seen := cut(pageSlots*tileSpan), cut(pageSlots*tileSpan/2), cut(columns*a.dim/2), cut(columns)
	turned := cut(a.dim * tileSpan)
	clear(acc)
	clear(sum)
	clear(scores) // columns without a query stay as they are
	counts := unsafe.Slice((*int32)(unsafe.Pointer(&seen[0])), columns)
	for i := range columns {
		peak[i] = float32(math.Inf(-1))
		counts[i] = a.seen[min(i, a.queries-1)]
	}
	clear(packed)
	tiles := unsafe.Slice((*uint16)(unsafe.Pointer(&packed[0])), 2*len(packed))
	for g := range groups {
		part := a.q[g*tileSpan*a.dim:]
		rows := min(tileSpan, a.queries-g*tileSpan)
		if rows < n { // the last of several: whole tiles, of which some columns are 0
			copy(turned, part[:rows*a.dim])
			clear(turned[rows*a.dim:])
			part = turned
		}
		tilePack(&tiles[g*tileSpan*a.dim], &part[0], 4*a.dim, n, steps)
	}
	cfg := tileConfig{palette: 1}
	cfg.many(n)
	t := tileAttention{
		cfg: &cfg, pages: unsafe.Pointer(&a.pages[0]), count: len(a.pages),
		krow: 2 * a.dim, values: 2 * a.dim * pageSlots,
		q: unsafe.Pointer(&packed[0]), qrow: 4 * n, qstep: 64 * n, steps: steps,
		acc: unsafe.Pointer(&acc[0]), peak: unsafe.Pointer(&peak[0]), sum: unsafe.Pointer(&sum[0]), seen: unsafe.Pointer(&seen[0]),
		s: unsafe.Pointer(&scores[0]), p: unsafe.Pointer(&weights[0]),
		groups: groups, qgroup: 2 * tileSpan * a.dim, agroup: 4 * tileSpan * a.dim,
	}
	tileAttend(&t)
	for g := range groups {
		rows := min(tileSpan, a.queries-g*tileSpan)
		tileTranspose(&turned[0], 4*a.dim, &acc[g*a.dim*tileSpan], 4*tileSpan, a.dim, rows)
		for i := range rows {
			at := g*tileSpan + i
			out := a.out(at)
			copy(out, turned[i*a.dim:(i+1)*a.dim])
			a.scale(out, 1/sum[at])
		}
	}
}
