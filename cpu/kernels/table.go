// Package kernels is the arithmetic of package cpu: a Table of operations for each
// instruction set, and the reference in plain Go that all are compared with.
//
// Matrices are row-major, and lengths and strides count elements but where bytes
// are said. A slice that is shorter than its operation needs panics, in every table.
package kernels

import (
	"math"
	"math/bits"
	"unsafe"

	"windrow/backend"
)

// Table is one instruction set's arithmetic: the operations through which every
// forward runs. Reference is that in plain Go; each faster table starts as a copy of
// the best one below it and replaces entries.
//
// Every entry keeps batch invariance: what it computes for a row depends on
// that row and on fixed sizes only, never on how many rows ride along or on
// which worker runs it. Entries may be called from several goroutines at once.
type Table struct {
	// Name is that of Names: "avx2".
	Name string

	// Exact multiplies with activations in f32; it takes every weight dtype.
	Exact Projector
	// Fast multiplies bf16 weights with activations rounded to bf16; nil where
	// the hardware has nothing faster than Exact.
	Fast Projector

	// Quant gives the arithmetic for a quantised weight [out, in] with activations
	// rounded to int8; nil where there is none, in the table or for this weight.
	Quant func(t *backend.Tensor) Projector
	// QuantName names it; a weight's projector has a name of its own.
	QuantName string
	// QuantRow widens row o of a quantised weight [out, in] into dst [in], with the
	// bits of quant.Row; nil means quant.Row itself.
	QuantRow func(dst []float32, t *backend.Tensor, o int)

	VectorKernels
}

// VectorKernels are the operations on f32 vectors. Lengths are any; the fast
// ones handle tails themselves. An element's bits depend on its operands alone, and
// those of a sum or a maximum on the vector and its length.
type VectorKernels struct {
	// WidenBF16 and WidenF16 convert len(dst) elements of 2 bytes, little-endian and
	// of any alignment.
	WidenBF16, WidenF16 func(dst []float32, src []byte)
	// NarrowBF16 rounds to nearest even (NaN stays NaN), 2·len(src) bytes.
	NarrowBF16 func(dst []byte, src []float32)
	// WidenInt8 sets dst[i] = scale·int8(src[i]).
	WidenInt8 func(dst []float32, src []byte, scale float32)

	// SumSquares returns Σ x².
	SumSquares func(x []float32) float32
	// ScaleMul sets dst = x·s·w, elementwise: RMSNorm's second half.
	ScaleMul func(dst, x, w []float32, s float32)
	// NormRows sets row r of dst, from r·ldd on, to x·(num/√(Σx²/div + eps))·w of that of x,
	// from r·ldx on, n elements each, with the bits of SumSquares and of ScaleMul or, where w
	// is nil, Scale. It reports whether it has; nil: it never does.
	NormRows func(dst []float32, ldd int, x []float32, ldx int, w []float32, n, rows int, div, eps, num float64) bool
	// Add sets dst += x.
	Add func(dst, x []float32)
	// AddRows adds row i of x [rows, n], times weights[i], to that of dst which begins at
	// list[i]·ldd, with the bits of Scale and Add. Where list is nil it is i, where weights is
	// nil nothing is multiplied. It reports whether it has; nil: it never does.
	AddRows func(dst []float32, ldd int, list []int, x []float32, n int, weights []float32, rows int) bool
	// Scale sets x *= s.
	Scale func(x []float32, s float32)
	// Taps sets dst[c] = Σ x[t][c]·w[t·stride+c], from t = 0 on, each product and sum rounded
	// once: a row of a causal convolution by channel, without the taps that reach before the
	// sequence.
	Taps func(dst []float32, x [][]float32, w []float32, stride int)
	// Exps sets x to e^x, with the bits of math.Exp.
	Exps func(x []float64)
	// Rotate rotates the pairs (x[i], x[i+n]), n = len(x)/2, by (cos[i], sin[i]).
	Rotate func(x, cos, sin []float32)
	// SiluMul sets dst = gate/(1+e^-gate)·up.
	SiluMul func(dst, gate, up []float32)
	// GateDiv sets x = x/(1+e^-gate), with the bits of ExpSum; nil: none.
	GateDiv func(x, gate []float32)

	// Maximum returns the largest element; -Inf for none. NaN may be lost.
	Maximum func(x []float32) float32
	// FirstAtLeast is the place of the first element that is no less than bar, or len(x) where
	// there is none.
	FirstAtLeast func(x []float32, bar float32) int
	// ExpSum sets x = e^(x-shift) and returns the sum.
	ExpSum func(x []float32, shift float32) float32
	// ExpSums returns Σ e^(x-shift) and Σ e^(x-shift)·(x-shift).
	ExpSums func(x []float32, shift float32) (s0, s1 float32)

	// AttendScores sets s[i·lds+j] = q[i]·k[j] for nq queries [nq, d] and nk
	// keys [nk, d]; a score depends on its query and its key alone.
	AttendScores func(s []float32, lds int, q, k []float32, nq, nk, d int)
	// AttendValues adds Σ_j p[i·ldp+j]·v[j] to acc[i] for nq rows [nq, d] and
	// nk values [nk, d], j ascending, one multiply-add after the other.
	AttendValues func(acc, p []float32, ldp int, v []float32, nq, nk, d int)

	// DeltaFold and DeltaStep are gated DeltaNet's on some columns of a state
	// [len(k), columns]; all tables give the same bits. DeltaFold sets
	// dst = k·dᵀ + alpha·src, where dst may be src. DeltaStep makes a row of s:
	//
	//	d = beta·(v - alpha·sᵀk)      sums in ascending order, rounded once a term
	//	s = k·dᵀ + alpha·s            alpha·s is rounded, then the sum
	//	o = sᵀq                       sums as above
	DeltaFold func(dst, src, k, d []float32, alpha float32)
	DeltaStep func(s, q, k, v, d, o []float32, alpha, beta float32)
	// DeltaRows is DeltaStep of several rows, with its bits; nil: none.
	DeltaRows func(y *DeltaRows)
	// FoldRows is DeltaFold of rows that follow each other, with its bits, the first one on
	// src and the others on what the one before made; columns is a multiple of DeltaColumns.
	// Keys, deltas and alphas of row r begin at r·ldk, r·ldd and r·ldh. nil: none.
	FoldRows func(dst, src []float32, columns, keys, rows int, k []float32, ldk int, d []float32, ldd int, alpha []float32, ldh int)
	// TapsRows is Taps of rows x[r·ldx:], of n channels each, with its bits: row r of dst
	// [rows, n] is that of rows r to r+taps-1 of x; nil: none.
	TapsRows func(dst []float32, n, rows int, x []float32, ldx int, w []float32, taps, ldw int)

	// NarrowScores and NarrowValues are the same over bf16 keys and values as
	// they are stored, for an even number of queries and d a multiple of 64; the
	// bits are those of widening first. keys hold nk rounded up to 8, whose
	// scores past nk are undefined. next, which may be empty, is prefetched.
	// nil: none.
	NarrowScores func(s []float32, lds int, q []float32, keys []byte, nq, nk, d int, next []byte)
	NarrowValues func(acc, p []float32, ldp int, values []byte, nq, nk, d int)

	// AttendPages is attention over whole pages of bf16 whose values are transposed,
	// with queries and weights rounded to bf16, for head dimensions that are
	// multiples of 32; nil: none. A query's result depends on that query, on how
	// many keys it sees and on its pages.
	AttendPages func(a *PageAttention, s *Scratch)
}

// Projector is one arithmetic of y = x·wᵀ, x [rows, in], w [out, in], y [rows, out].
// The bits of a row of y depend on that row of x and on w: not on the other rows, nor
// on how outputs are cut into calls.
type Projector interface {
	// Name is that of the packed form: projections of one name share a Packed.
	Name() string
	// Takes reports whether a weight of this dtype and row length is in its
	// reach; what is not goes to the next arithmetic, for all row counts.
	Takes(dt backend.DType, in int) bool
	// PackSize is what the packed form of rows × in activations needs, in elements.
	PackSize(rows, in int) (f32s, b16s int)
	// PackRows is the granularity in which rows can be packed independently.
	PackRows() int
	// Pack lays out rows [r0, r1) of x [rows, in] in p, which Prepare has made; r0
	// is a multiple of PackRows.
	Pack(p *Packed, x []float32, r0, r1 int)
	// Chunk is how many outputs one work item should carry. It may depend on
	// rows: results must not depend on it.
	Chunk(rows, in int) int
	// Project sets y[r·ldy + o-o0] = Σ_k x[r][k]·w[o][k] for all packed rows and
	// o in [o0, o1). Memory that it needs besides is taken from s, which one call
	// at a time may use.
	Project(y []float32, ldy int, p *Packed, w *Weight, o0, o1 int, s *Scratch)
}

// RowProjector is a Projector whose packed rows lie by themselves: Pack takes any of them,
// whatever PackRows says.
type RowProjector interface {
	Projector
	// PackColumns lays out columns [from, from+n) of all rows of p, which Prepare has made,
	// from x [Rows, n]; both are multiples of PackedColumns.
	PackColumns(p *Packed, x []float32, from, n int)
	// TakesRows reports whether packed rows of w's length may be taken by a list.
	TakesRows(w *Weight) bool
	// ProjectRows is Project of the packed rows of a list, in its order, of a weight that
	// TakesRows.
	ProjectRows(y []float32, ldy int, p *Packed, list []int, w *Weight, o0, o1 int, s *Scratch)
}

// PackedColumns are as many columns as a RowProjector lays out at once.
const PackedColumns = 32

// IntegerProjector is a Projector that rounds activations to int8.
type IntegerProjector interface {
	Projector
	// Arithmetic names the kernels, for people; Name says how activations are packed.
	Arithmetic() string
}

// Packed holds activations [Rows, in] in a projector's layout. The zero value is
// empty.
type Packed struct {
	Rows int

	in  int
	f32 []float32
	b16 []uint16
}

// Prepare makes room for rows × in activations in the layout of proj, of undefined
// contents. Memory is kept from one use to the next.
func (p *Packed) Prepare(proj Projector, rows, in int) {
	floats, halves := proj.PackSize(rows, in)
	p.Rows, p.in, p.f32, p.b16 = rows, in, Grown(&p.f32, floats), Grown(&p.b16, halves)
}

// Scratch is one worker's memory for kernels, grown on demand and kept. The zero
// value is ready.
type Scratch struct {
	// Next is how many outputs on from the first of those that a worker is at its next ones
	// of the same weights begin, as far as one can tell; 0: it is not known. They may be
	// fetched ahead.
	Next int
	// After, where not nil, are the weights of which a worker reads outputs next, from
	// AfterFrom on and as many as of those that it is at: their beginning may be fetched.
	// Whoever sets them takes them away again.
	After     *Weight
	AfterFrom int
	project   []float32 // a projector's own
	quant     []float32 // parts of a quantised weight, decoded or widened
	attend    []float32 // of AttendPages
	panel     Weight    // a widened part of a quantised weight
}

// Grown is *s with n elements, of undefined contents; *s is made anew where it has
// room for fewer. Room is made for a power of two of them, if that is not too many: passes
// are of any number of rows, and each that is the largest so far would make it anew, hours
// after a server's start still.
func Grown[T any](s *[]T, n int) []T {
	if cap(*s) < n {
		room := max(n, ownLines/int(unsafe.Sizeof((*s)[0])))
		if room > 1 && n <= mostRounded {
			room = 1 << bits.Len(uint(room-1))
		}
		*s = make([]T, room)
	}
	return (*s)[:n]
}

// ownLines are the bytes that Grown makes at least: memory of so many has its cache lines for
// itself, so that workers do not take them from each other.
const ownLines = 128

// mostRounded are the elements up to which Grown rounds up.
const mostRounded = 1 << 22

// Rounds reports whether some weights meet rounded activations.
func (k *Table) Rounds() bool { return k.Fast != nil || k.Quant != nil }

// IsReference reports whether the table is that of plain Go.
func (k *Table) IsReference() bool {
	_, ok := k.Exact.(genericProjector)
	return ok
}

// Projector chooses the arithmetic for w, whose data it does not read. exact keeps
// activations in f32.
func (k *Table) Projector(w *Weight, exact bool) Projector {
	if w.dt.Quantized() {
		if !exact && k.Quant != nil {
			if p := k.Quant(&w.tensor); p != nil {
				return p
			}
		}
		return newPanelProjector(k)
	}
	switch {
	case !exact && k.Fast != nil && k.Fast.Takes(w.dt, w.in):
		return k.Fast
	case k.Exact.Takes(w.dt, w.in):
		return k.Exact
	}
	return genericProjector{}
}

// IsExact reports whether p, a projector of the table, multiplies with activations
// in f32.
func (k *Table) IsExact(p Projector) bool {
	if _, ok := p.(panelProjector); ok {
		return true
	}
	return p == k.Exact
}

// WidenRow converts row o of w to f32, into dst [in].
func (k *Table) WidenRow(dst []float32, w *Weight, o int) {
	if w.dt.Quantized() && k.QuantRow != nil {
		k.QuantRow(dst, &w.tensor, o)
		return
	}
	w.widenRow(dst, o, k.WidenBF16, k.WidenF16)
}

// RMSNorm sets dst = x / sqrt(mean(x²) + eps) · w, all of one length; dst may be x.
func (k *Table) RMSNorm(dst, x, w []float32, eps float32) {
	mean := float64(k.SumSquares(x)) / float64(len(x))
	k.ScaleMul(dst, x, w, float32(1/math.Sqrt(mean+float64(eps))))
}

// RMSNormRows is RMSNorm of rows of n elements, of dst from r·ldd and of x from r·ldx on.
func (k *Table) RMSNormRows(dst []float32, ldd int, x []float32, ldx int, w []float32, n, rows int, eps float32) {
	if k.NormRows != nil && k.NormRows(dst, ldd, x, ldx, w[:n], n, rows, float64(n), float64(eps), 1) {
		return
	}
	for r := range rows {
		k.RMSNorm(dst[r*ldd:][:n], x[r*ldx:][:n], w, eps)
	}
}

// UnitRows sets rows [rows, n] of x to x·scale/√(Σx² + eps).
func (k *Table) UnitRows(x []float32, n, rows int, scale, eps float64) {
	if k.NormRows != nil && k.NormRows(x, n, x, n, nil, n, rows, 1, eps, scale) {
		return
	}
	for r := range rows {
		row := x[r*n : (r+1)*n]
		k.Scale(row, float32(scale/math.Sqrt(float64(k.SumSquares(row))+eps)))
	}
}

// AddTo is AddRows in any case. x may be overwritten.
func (k *Table) AddTo(dst []float32, ldd int, list []int, x []float32, n int, weights []float32, rows int) {
	if k.AddRows != nil && k.AddRows(dst, ldd, list, x, n, weights, rows) {
		return
	}
	for i := range rows {
		row, r := x[i*n:(i+1)*n], i
		if list != nil {
			r = list[i]
		}
		if weights != nil {
			k.Scale(row, weights[i])
		}
		k.Add(dst[r*ldd:][:n], row)
	}
}
