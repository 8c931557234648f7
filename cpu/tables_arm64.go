package cpu

import "windrow/backend"

// architectureTables are those of arm64, best last. Every processor that Go runs
// on has NEON with fused multiply-add; those since 2017 have SDOT, those since 2020
// or so SMMLA.
var architectureTables = []namedTable{
	{"neon", asimd.lacking, neonKernels},
	{"neondot", asimddp.lacking, func() *kernels { return withQuantDots("neondot", false) }},
	{"neoni8mm", i8mm.lacking, func() *kernels { return withQuantDots("neoni8mm", true) }},
}

// withQuantDots is the table of NEON with integer arithmetic for quantised
// weights.
func withQuantDots(name string, mmla bool) *kernels {
	k := neonKernels()
	k.name, k.quantName = name, dotsName(mmla)
	k.quant = func(t *backend.Tensor) projector { return newQuantDots(t, mmla) }
	return k
}

// neonKernels is the table for 128-bit vectors. None of its timings were
// measured on hardware: its loops were chosen by counting instructions.
func neonKernels() *kernels {
	k := genericKernels()
	k.name = "neon"
	k.exact = neonProjector{}
	k.vectorKernels = vectorKernels{
		widenBF16:    neonWidenBF16,
		widenF16:     neonWidenF16,
		narrowBF16:   neonNarrowBF16,
		widenInt8:    neonWidenInt8,
		sumSquares:   neonSumSquares,
		scaleMul:     neonScaleMul,
		add:          neonAdd,
		scale:        neonScale,
		rotate:       neonRotate,
		siluMul:      neonSiluMul,
		maximum:      neonMaximum,
		expSum:       neonExpSum,
		expSums:      neonExpSums,
		attendScores: neonAttendScores,
		attendValues: neonAttendValues,
	}
	return neonRows.of(k)
}
