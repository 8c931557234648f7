package cpu

// Every arm64 processor that Go runs on has NEON with fused multiply-add.
func init() {
	kernelTables["neon"] = neonKernels
	bestKernels = func() string { return "neon" }
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
	return k
}
