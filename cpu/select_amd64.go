package cpu

import "github.com/klauspost/cpuid/v2"

// amd64Tables are the kernel tables of amd64, best first; a table is there
// only where the machine can run it.
var amd64Tables = []string{"amx", "avx512bf16", "avx512", "avx2", "go"}

func init() {
	if hasAMX() {
		kernelTables["amx"] = func() *kernels { return withFast("amx", amxProjector{}) }
	}
	if hasAVX512BF16() {
		kernelTables["avx512bf16"] = func() *kernels {
			return withFast("avx512bf16", bf16Projector{linear: cpuid.CPU.VendorID == cpuid.AMD})
		}
	}
	bestKernels = func() string {
		for _, name := range amd64Tables {
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

// hasAVX512BF16 tells whether the processor has VDPBF16PS in 512 bits.
func hasAVX512BF16() bool {
	return cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL, cpuid.AVX512BF16)
}
