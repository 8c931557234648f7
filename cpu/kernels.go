package cpu

import (
	"unsafe"

	"windrow/backend"
)

// kernels is one instruction set's arithmetic: the table through which every
// operation of the backend runs. generic() is the reference in plain Go; each
// faster table starts as a copy of the best one below it and replaces entries.
//
// Every entry keeps batch invariance: what it computes for a row depends on
// that row and on fixed sizes only, never on how many rows ride along or on
// which worker runs it.
type kernels struct {
	name string

	// exact multiplies with activations in f32; it takes every weight dtype.
	exact projector
	// fast multiplies bf16 weights with activations rounded to bf16; nil where
	// the hardware has nothing faster than exact.
	fast projector

	// quant gives the arithmetic for a quantised weight with activations rounded
	// to int8; nil where there is none, in the table or for this weight.
	quant func(t *backend.Tensor) projector
	// quantName names it; a weight's projector tells its own.
	quantName string
	// quantRow widens a row of a quantised weight, with the bits of quant.Row;
	// nil means quant.Row itself.
	quantRow func(dst []float32, t *backend.Tensor, o int)

	vectorKernels
}

// vectorKernels are the operations on f32 vectors. Lengths are any; the fast
// ones handle tails themselves.
type vectorKernels struct {
	// widenBF16 and widenF16 convert len(dst) elements of little-endian bytes.
	widenBF16, widenF16 func(dst []float32, src []byte)
	// narrowBF16 rounds to nearest even (NaN stays NaN), 2·len(src) bytes.
	narrowBF16 func(dst []byte, src []float32)
	// widenInt8 sets dst[i] = scale·int8(src[i]).
	widenInt8 func(dst []float32, src []byte, scale float32)

	// sumSquares returns Σ x².
	sumSquares func(x []float32) float32
	// scaleMul sets dst = x·s·w, elementwise: RMSNorm's second half.
	scaleMul func(dst, x, w []float32, s float32)
	// add sets dst += x.
	add func(dst, x []float32)
	// scale sets x *= s.
	scale func(x []float32, s float32)
	// rotate turns the pairs (x[i], x[i+n]), n = len(x)/2, by (cos[i], sin[i]).
	rotate func(x, cos, sin []float32)
	// siluMul sets dst = gate/(1+e^-gate)·up.
	siluMul func(dst, gate, up []float32)

	// maximum returns the largest element; -Inf for none. NaN may be lost.
	maximum func(x []float32) float32
	// expSum sets x = e^(x-shift) and returns the sum.
	expSum func(x []float32, shift float32) float32
	// expSums returns Σ e^(x-shift) and Σ e^(x-shift)·(x-shift).
	expSums func(x []float32, shift float32) (s0, s1 float32)

	// attendScores sets s[i·lds+j] = q[i]·k[j] for nq queries [nq, d] and nk
	// keys [nk, d].
	attendScores func(s []float32, lds int, q, k []float32, nq, nk, d int)
	// attendValues adds Σ_j p[i·ldp+j]·v[j] to acc[i] for nq rows [nq, d] and
	// nk values [nk, d], j ascending, one multiply-add after the other.
	attendValues func(acc, p []float32, ldp int, v []float32, nq, nk, d int)

	// narrowScores and narrowValues are the same over bf16 keys and values as
	// they are stored, for an even number of queries and d a multiple of 64; the
	// bits are those of widening first. keys hold nk rounded up to 8, whose
	// scores past nk are undefined. next, which may be empty, is prefetched.
	// nil: none.
	narrowScores func(s []float32, lds int, q []float32, keys []byte, nq, nk, d int, next []byte)
	narrowValues func(acc, p []float32, ldp int, values []byte, nq, nk, d int)

	// attendPages is attention over whole pages of bf16 whose values lie by
	// dimension, with queries and weights rounded to bf16; nil: none.
	attendPages func(a *pageAttention, s *scratch)
}

// projector is one arithmetic of y = x·wᵀ.
type projector interface {
	name() string
	// takes reports whether a weight of this dtype and row length is in its
	// reach; what is not goes to the next arithmetic, for all row counts.
	takes(dt backend.DType, in int) bool
	// packSize is what the packed form of rows × in activations needs.
	packSize(rows, in int) (f32s, b16s int)
	// packRows is the granularity in which rows can be packed independently.
	packRows() int
	// pack lays out rows [r0, r1) of x [rows, in]; r0 is a multiple of packRows.
	pack(p *packed, x []float32, r0, r1 int)
	// chunk is how many outputs one work item should carry. It may depend on
	// rows: results must not depend on it.
	chunk(rows, in int) int
	// project sets y[r·ldy + o-o0] = Σ_k x[r][k]·w[o][k] for all packed rows and
	// o in [o0, o1). Memory that it needs besides is taken from s.
	project(y []float32, ldy int, p *packed, w *matrix, o0, o1 int, s *scratch)
}

// packed holds activations in a projector's layout.
type packed struct {
	rows, in int
	f32      []float32
	b16      []uint16
}

// scratch is one worker's memory, grown on demand and kept.
type scratch struct {
	f32   [7][]float32
	panel matrix           // a widened part of a quantised weight
	seen  []int32          // attendPages: how many keys each query sees
	pages []unsafe.Pointer // and the pages
}

// floats returns buffer i with at least n elements, contents undefined.
func (s *scratch) floats(i, n int) []float32 {
	if len(s.f32[i]) < n {
		s.f32[i] = make([]float32, n)
	}
	return s.f32[i][:n]
}

// rounds reports whether some weights meet rounded activations.
func (k *kernels) rounds() bool { return k.fast != nil || k.quant != nil }
