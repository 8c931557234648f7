package cpu

import (
	"github.com/klauspost/cpuid/v2"

	"windrow/backend"
)

// amd64Tables lists the kernel tables of amd64, best first; a table is there
// only where the machine can run it.
//
// AMD runs VDPBF16PS at twice the rate of f32 multiply-adds (Zen 5: 500 against
// 257 GFLOP/s a thread). Intel does not (Sapphire Rapids: 72 against 135): from
// L2, 64 rows × 64 outputs × 2048 run at 78 GFLOP/s in avx512-bf16, at 111 in
// avx512-f32 and at 956 in AMX. So an Intel processor without AMX, or without
// leave to use it, runs f32, which needs no rounding either.
func amd64Tables() []string {
	if cpuid.CPU.VendorID == cpuid.Intel {
		return []string{"amx", "avx512", "avx512bf16", "avxvnni", "avx2", "go"}
	}
	return []string{"amx", "avx512bf16", "avx512", "avxvnni", "avx2", "go"}
}

func init() {
	if hasAMX() {
		kernelTables["amx"] = func() *kernels {
			k := withFast("amx", amxProjector{})
			k.attendPages = amxAttendPages
			if featuresAMXInt8.here() {
				k.quant, k.quantName = quantTilesFor, tilesName
			}
			return k
		}
	}
	if featuresAVX512BF16.here() {
		kernelTables["avx512bf16"] = func() *kernels { return withDots(withFast("avx512bf16", bf16Projector{}), bestDots()) }
	}
	if make, ok := kernelTables["avx512"]; ok {
		kernelTables["avx512"] = func() *kernels {
			return avx512Rows.of(withDots(make(), bestDots()))
		}
	}
	if make, ok := kernelTables["avx2"]; ok {
		avx2 := func() *kernels {
			return avx2Rows.of(withDots(make(), dotsOfAVX2))
		}
		kernelTables["avx2"] = avx2
		if featuresAVXVNNI.here() {
			kernelTables["avxvnni"] = func() *kernels {
				k := withDots(avx2(), dotsOfAVXVNNI)
				k.name = "avxvnni"
				return k
			}
		}
	}
	bestKernels = func() string {
		for _, name := range amd64Tables() {
			if _, ok := kernelTables[name]; ok {
				return name
			}
		}
		return "go"
	}
}

// withFast is the best table of f32 arithmetic with a faster projector for
// bf16 weights.
func withFast(name string, fast projector) *kernels {
	k := genericKernels()
	for _, lower := range []string{"avx512", "avx2"} {
		if make, ok := kernelTables[lower]; ok {
			k = make()
			break
		}
	}
	k.name, k.fast = name, fast
	return k
}

// withDots gives a table integer arithmetic for quantised weights.
func withDots(k *kernels, isa int) *kernels {
	k.quant, k.quantName = func(t *backend.Tensor) projector { return newQuantDots(t, isa) }, dotsNames[isa]
	return k
}

// bestDots is the integer arithmetic of a table of AVX-512.
func bestDots() int {
	switch {
	case featuresVNNI.here():
		return dotsOfAVX512
	case featuresAVXVNNI.here():
		return dotsOfAVXVNNI
	}
	return dotsOfAVX2
}
