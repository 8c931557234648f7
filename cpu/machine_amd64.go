package cpu

import "github.com/klauspost/cpuid/v2"

func machineFeatures() (list []machineFeature) {
	for _, f := range []struct {
		name string
		id   cpuid.FeatureID
	}{
		{"avx2", cpuid.AVX2}, {"fma", cpuid.FMA3}, {"f16c", cpuid.F16C}, {"bmi2", cpuid.BMI2}, {"avx_vnni", cpuid.AVXVNNI},
		{"avx512f", cpuid.AVX512F}, {"avx512bw", cpuid.AVX512BW}, {"avx512dq", cpuid.AVX512DQ}, {"avx512vl", cpuid.AVX512VL},
		{"avx512_vnni", cpuid.AVX512VNNI}, {"avx512vbmi", cpuid.AVX512VBMI}, {"avx512_bf16", cpuid.AVX512BF16},
		{"amx_tile", cpuid.AMXTILE}, {"amx_bf16", cpuid.AMXBF16}, {"amx_int8", cpuid.AMXINT8},
	} {
		list = append(list, machineFeature{f.name, cpuid.CPU.Supports(f.id)})
	}
	return list
}
