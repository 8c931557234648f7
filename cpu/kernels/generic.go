package kernels

import (
	"encoding/binary"
	"math"

	"windrow/backend"
	"windrow/quant"
)

// Reference is the table of plain Go, "go": the formulas as they are written. Every faster table is compared with it.
func Reference() *Table {
	return &Table{Name: "go", Exact: genericProjector{}, VectorKernels: VectorKernels{
		WidenBF16:    genericWidenBF16,
		WidenF16:     genericWidenF16,
		NarrowBF16:   genericNarrowBF16,
		WidenInt8:    genericWidenInt8,
		SumSquares:   genericSumSquares,
		ScaleMul:     genericScaleMul,
		Add:          genericAdd,
		Scale:        genericScale,
		Rotate:       genericRotate,
		SiluMul:      genericSiluMul,
		Maximum:      genericMaximum,
		FirstAtLeast: genericFirstAtLeast,
		ExpSum:       genericExpSum,
		ExpSums:      genericExpSums,
		AttendScores: genericAttendScores,
		AttendValues: genericAttendValues,
		Exps:         genericExps,
		Taps:         genericTaps,
		DeltaFold:    genericDeltaFold,
		DeltaStep:    genericDeltaStep,
	}}
}

func genericWidenBF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = quant.BF16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func genericWidenF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = quant.F16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

// WidenF32 converts len(dst) elements of 4 bytes, little-endian and of any alignment.
func WidenF32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

func genericNarrowBF16(dst []byte, src []float32) {
	for i, v := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], quant.F32ToBF16(v))
	}
}

func genericWidenInt8(dst []float32, src []byte, scale float32) {
	for i := range dst {
		dst[i] = scale * float32(int8(src[i]))
	}
}

func genericSumSquares(x []float32) float32 {
	var s [4]float32
	for i, v := range x {
		s[i&3] += v * v
	}
	return (s[0] + s[1]) + (s[2] + s[3])
}

func genericScaleMul(dst, x, w []float32, s float32) {
	for i, v := range x {
		dst[i] = v * s * w[i]
	}
}

func genericAdd(dst, x []float32) {
	for i, v := range x {
		dst[i] += v
	}
}

func genericScale(x []float32, s float32) {
	for i := range x {
		x[i] *= s
	}
}

func genericRotate(x, cos, sin []float32) {
	n := len(x) / 2
	a, b := x[:n], x[n:]
	for i := range n {
		c, s := cos[i], sin[i]
		a[i], b[i] = a[i]*c-b[i]*s, b[i]*c+a[i]*s
	}
}

func genericSiluMul(dst, gate, up []float32) {
	for i, g := range gate {
		dst[i] = g / (1 + Exp32(-g)) * up[i]
	}
}

// Exp32 is e^x as the reference rounds it: from float64.
func Exp32(x float32) float32 { return float32(math.Exp(float64(x))) }

func genericMaximum(x []float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range x {
		if v > m {
			m = v
		}
	}
	return m
}

func genericFirstAtLeast(x []float32, bar float32) int {
	for i, v := range x {
		if v >= bar {
			return i
		}
	}
	return len(x)
}

func genericExpSum(x []float32, shift float32) float32 {
	var s float32
	for i, v := range x {
		e := Exp32(v - shift)
		x[i] = e
		s += e
	}
	return s
}

func genericExpSums(x []float32, shift float32) (s0, s1 float32) {
	for _, v := range x {
		d := v - shift
		// e^d·d tends to 0; a logit of -Inf must not make it NaN.
		if e := Exp32(d); e != 0 {
			s0 += e
			s1 += e * d
		}
	}
	return s0, s1
}

func genericAttendScores(s []float32, lds int, q, k []float32, nq, nk, d int) {
	for i := range nq {
		for j := range nk {
			s[i*lds+j] = dot(q[i*d:(i+1)*d], k[j*d:(j+1)*d])
		}
	}
}

func genericAttendValues(acc, p []float32, ldp int, v []float32, nq, nk, d int) {
	for i := range nq {
		a := acc[i*d : (i+1)*d]
		for j := range nk {
			w := p[i*ldp+j]
			for c, x := range v[j*d : (j+1)*d] {
				a[c] += w * x
			}
		}
	}
}

// dot accumulates in four chains, as a compiler without vectors can overlap.
func dot(a, b []float32) float32 {
	var s0, s1, s2, s3 float32
	b = b[:len(a)]
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s0 += a[i] * b[i]
		s1 += a[i+1] * b[i+1]
		s2 += a[i+2] * b[i+2]
		s3 += a[i+3] * b[i+3]
	}
	for ; i < len(a); i++ {
		s0 += a[i] * b[i]
	}
	return (s0 + s1) + (s2 + s3)
}

// genericProjector widens each weight row once and multiplies it with every
// row of activations.
type genericProjector struct{}

func (genericProjector) Name() string                     { return "go-f32" }
func (genericProjector) Takes(backend.DType, int) bool    { return true }
func (genericProjector) PackSize(rows, in int) (int, int) { return rows * in, 0 }
func (genericProjector) PackRows() int                    { return 1 }
func (genericProjector) Chunk(rows, in int) int           { return 16 }

func (genericProjector) Pack(p *Packed, x []float32, r0, r1 int) {
	copy(p.f32[r0*p.in:r1*p.in], x[r0*p.in:r1*p.in])
}

func (genericProjector) Project(y []float32, ldy int, p *Packed, w *Weight, o0, o1 int, s *Scratch) {
	row := Grown(&s.project, w.in)
	for o := o0; o < o1; o++ {
		w.widenRow(row, o, genericWidenBF16, genericWidenF16)
		for r := range p.Rows {
			y[r*ldy+o-o0] = dot(row, p.f32[r*w.in:(r+1)*w.in])
		}
	}
}
