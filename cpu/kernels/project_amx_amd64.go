package kernels

import (
	"unsafe"

	"windrow/backend"
)

// amxProjector multiplies bf16 weights with activations rounded to bf16 on the
// matrix unit, 16 outputs × 16 rows × 32 elements an instruction.
//
// The weights are the A operand as they lie in the file: a tile is 32 elements
// of 16 rows, loaded with the file's own stride. The activations are the B
// operand, packed once a projection: for each group of 16 rows (the last may
// have fewer, n) and each 32 elements, 16 × n pairs (x[2j], x[2j+1]), pair j
// major. So each output is one chain over the steps of 32 in ascending order,
// whatever the row count, the place in a tile, or the K blocking, in which
// sums go through memory in full: batch invariance needs no further care.
//
// The unit's arithmetic: products exact, even and odd elements summed apart
// within a step, every addition rounded to f32, denormals taken and given as 0.
type amxProjector struct{}

const (
	// tileSpan is the rows of a tile, and tileStep the elements of a step.
	tileSpan = 16
	// tileGroups is the tiles of activations that one tile of weights meets
	// while it is loaded: up to 64 rows cost one read of the weights.
	tileGroups = 4
	tileStep   = 32
	// tileAhead is how many steps ahead of their use weights are prefetched, by
	// tilesNarrow alone. One row, one thread: 17.7 GB/s without, 19.0 at 2 to 4
	// steps, 18.3 at 16 (PREFETCHT0; T1 gives 0.93 of that in a quiet minute and
	// NTA half).
	tileAhead = 4
)

// tileConfig is the operand of LDTILECFG.
type tileConfig struct {
	palette uint8
	_       [15]uint8
	bytes   [16]uint16
	rows    [16]uint8
}

// tileCall is what the assembly works through: blocks of 16 outputs, in
// super-blocks of phases blocks. Offsets are in bytes, and
// named in project_amx_amd64.s.
type tileCall struct {
	cfg                   *tileConfig
	a                     unsafe.Pointer
	astride, aphase, asup int
	b0                    unsafe.Pointer
	group, groups         int
	b1                    unsafe.Pointer
	b1stride, b1step      int
	c                     unsafe.Pointer
	cstride, cphase, csup int
	steps, supers, phases int
	ahead                 int
}

//go:noescape
func tilesNarrow(t *tileCall)

//go:noescape
func tilePack(dst *uint16, x *float32, stride, rows, steps int)

//go:noescape
func tileTranspose(y *float32, ldy int, c *float32, ldc, outs, rows int)

func (amxProjector) Name() string { return "amx-bf16" }

func (amxProjector) Takes(dt backend.DType, in int) bool {
	return dt == backend.BF16 && in > 0 && in%tileStep == 0
}

func (amxProjector) PackSize(rows, in int) (int, int) { return 0, rows * in }
func (amxProjector) PackRows() int                    { return tileSpan }

// Chunk is large enough that the start of a chunk, 16 streams that nothing has
// prefetched yet, costs little (one row: 64 outputs of 2048 read 5 % slower than
// 128), and small enough that its weights stay in L2 where several passes of
// rows go over them.
func (amxProjector) Chunk(rows, in int) int {
	if in > 4096 {
		return 64
	}
	return 128
}

func (amxProjector) Pack(p *Packed, x []float32, r0, r1 int) {
	for r := r0; r < r1; r += tileSpan {
		n := min(tileSpan, r1-r)
		dst, src := p.b16[r*p.in:(r+n)*p.in], x[r*p.in:(r+n)*p.in]
		if n == 1 {
			packBF16(&dst[0], &src[0], p.in/tileStep)
			continue
		}
		tilePack(&dst[0], &src[0], 4*p.in, n, p.in/tileStep)
	}
}

// tilePhases is how many neighbouring rows of weights a stream reads one after
// the other. The 16 rows of a tile are 16 streams, and the prefetcher follows
// one stream in a page of 4 KiB: rows of 2 KiB taken one by one read 11 GB/s,
// in pairs 16 (one thread of a Sapphire Rapids at 10 GB/s for a linear read).
// span is the outputs of a block.
func tilePhases(stride, outs, span int) int {
	q := 1
	for stride*q < 4096 && q < 4 && outs%(2*q*span) == 0 {
		q *= 2
	}
	return q
}

func (pr amxProjector) Project(y []float32, ldy int, p *Packed, w *Weight, o0, o1 int, s *Scratch) {
	outs, stride := o1-o0, 2*w.in
	if outs <= 0 || p.Rows <= 0 {
		return
	}
	a := w.data[o0*stride : o1*stride]
	_ = y[(p.Rows-1)*ldy+outs-1]
	if p.Rows == 1 {
		pr.narrow(&y[0], 4, a, stride, outs, p, 0, 1)
		return
	}
	if p.Rows >= manyFrom {
		full := outs / (2 * tileSpan) * (2 * tileSpan)
		if full > 0 {
			pr.many(y, ldy, a, stride, full, p, s)
		}
		if full == outs {
			return
		}
		y, a, outs = y[full:], a[full*stride:], outs-full
	}
	// Sums of a part of the rows, [outs, span].
	const span = tileGroups * tileSpan
	c := Grown(&s.project, (outs+tileSpan-1)/tileSpan*tileSpan*span)
	for r := 0; r < p.Rows; r += span {
		n := min(span, p.Rows-r)
		pr.narrow(&c[0], 4*span, a, stride, outs, p, r, n)
		for i := 0; i < n; i += tileSpan {
			tileTranspose(&y[(r+i)*ldy], 4*ldy, &c[i], 4*span, outs, min(n-i, tileSpan))
		}
	}
}

// narrow multiplies n ≤ 64 rows from row r; ldc is in bytes.
func (amxProjector) narrow(c *float32, ldc int, a []byte, stride, outs int, p *Packed, r, n int) {
	steps := p.in / tileStep
	groups := (n + tileSpan - 1) / tileSpan
	last := (groups - 1) * tileSpan
	cfg := tileConfig{palette: 1}
	t := tileCall{
		cfg: &cfg, a: unsafe.Pointer(&a[0]),
		b0: unsafe.Pointer(&p.b16[r*p.in]), group: stride * tileSpan, groups: groups,
		b1: unsafe.Pointer(&p.b16[(r+last)*p.in]), b1stride: 4 * (n - last), b1step: 64 * (n - last),
		c: unsafe.Pointer(c), steps: steps, ahead: min(tileAhead, steps),
	}
	if full := outs / tileSpan * tileSpan; full > 0 {
		q := tilePhases(stride, full, tileSpan)
		t.astride, t.aphase, t.asup = q*stride, stride, tileSpan*q*stride
		t.cstride, t.cphase, t.csup = q*ldc, ldc, tileSpan*q*ldc
		t.supers, t.phases = full/tileSpan/q, q
		cfg.narrow(tileSpan, groups, n-last)
		tilesNarrow(&t)
		outs -= full
		if outs == 0 {
			return
		}
		t.a = unsafe.Pointer(&a[full*stride])
		t.c = unsafe.Add(t.c, full*ldc)
	}
	cfg.narrow(outs, groups, n-last)
	t.astride, t.cstride, t.supers, t.phases = stride, ldc, 1, 1
	tilesNarrow(&t)
}

// narrow sets the shapes of tilesNarrow: C tiles 0..3 of m rows, B tiles 4 of
// 16 columns and 5 of n, A tile 6 of m rows.
func (c *tileConfig) narrow(m, groups, n int) {
	for t := range 8 {
		c.rows[t], c.bytes[t] = tileSpan, 64
	}
	for _, t := range []int{0, 1, 2, 3, 6} {
		c.rows[t] = uint8(m)
	}
	c.bytes[groups-1], c.bytes[5] = uint16(4*n), uint16(4*n)
}
