package kernels

import "windrow/backend"

// architectureTables are those of arm64, best last. Every processor that Go runs
// on has NEON with fused multiply-add; those since 2017 have SDOT, those since 2020
// or so SMMLA.
var architectureTables = []namedTable{
	{"neon", asimd.lacking, neonKernels},
	{"neondot", asimddp.lacking, func() *Table { return withQuantDots("neondot", false) }},
	{"neoni8mm", i8mm.lacking, func() *Table { return withQuantDots("neoni8mm", true) }},
}

// withQuantDots is the table of NEON with integer arithmetic for quantised
// weights.
func withQuantDots(name string, mmla bool) *Table {
	k := neonKernels()
	k.Name, k.QuantName = name, dotsName(mmla)
	k.Quant = func(t *backend.Tensor) Projector { return newQuantDots(t, mmla) }
	return k
}

// neonKernels is the table for 128-bit vectors. None of its timings were
// measured on hardware: its loops were chosen by counting instructions.
func neonKernels() *Table {
	k := Reference()
	k.Name = "neon"
	k.Exact = neonProjector{}
	k.VectorKernels = VectorKernels{
		WidenBF16:    neonWidenBF16,
		WidenF16:     neonWidenF16,
		NarrowBF16:   neonNarrowBF16,
		WidenInt8:    neonWidenInt8,
		SumSquares:   neonSumSquares,
		ScaleMul:     neonScaleMul,
		Add:          neonAdd,
		Scale:        neonScale,
		Rotate:       neonRotate,
		SiluMul:      neonSiluMul,
		Maximum:      neonMaximum,
		FirstAtLeast: genericFirstAtLeast,
		ExpSum:       neonExpSum,
		ExpSums:      neonExpSums,
		AttendScores: neonAttendScores,
		AttendValues: neonAttendValues,
	}
	neonDelta.of(&k.VectorKernels)
	return neonRows.of(k)
}
