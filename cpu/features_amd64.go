package cpu

import (
	"strings"

	"github.com/klauspost/cpuid/v2"
)

// featureSet is what assembly takes of a processor beyond amd64's baseline,
// SSE2. cpuid reports a feature only where the system saves its registers, too.
type featureSet []cpuid.FeatureID

// The sets that tables, and routines that no table holds, ask for.
// TestAssemblyFeatures reads the instructions of each routine and compares.
var (
	// Haswell, Zen and later.
	featuresAVX2 = featureSet{cpuid.AVX2, cpuid.FMA3, cpuid.F16C}
	// Alder Lake, Zen 5 and later.
	featuresAVXVNNI = featuresAVX2.and(cpuid.AVXVNNI)
	// Skylake server, Ice Lake, Zen 4 and later.
	featuresAVX512 = featuresAVX2.and(cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL, cpuid.BMI2)
	// VDPBF16PS in 512 bits: Cooper Lake, Sapphire Rapids, Zen 4 and later.
	featuresAVX512BF16 = featuresAVX512.and(cpuid.AVX512BF16)
	// VPDPBUSD in 512 bits: Cascade Lake, Ice Lake, Zen 4 and later.
	featuresVNNI = featuresAVX512.and(cpuid.AVX512VNNI)
	// VPERMI2B besides, for one row: Ice Lake, Zen 4 and later.
	featuresVBMI = featuresVNNI.and(cpuid.AVX512VBMI)
	// The matrix unit: Sapphire Rapids and later; the system must let a process
	// use it, too (permitTiles).
	featuresAMX     = featuresAVX512BF16.and(cpuid.AMXTILE, cpuid.AMXBF16)
	featuresAMXInt8 = featuresAMX.and(cpuid.AMXINT8).and(featuresVBMI...)
)

func (s featureSet) and(more ...cpuid.FeatureID) featureSet {
	all := append(featureSet{}, s...)
	for _, f := range more {
		if !all.holds(f) {
			all = append(all, f)
		}
	}
	return all
}

func (s featureSet) holds(f cpuid.FeatureID) bool {
	for _, g := range s {
		if f == g {
			return true
		}
	}
	return false
}

// here reports whether this processor has all of s.
func (s featureSet) here() bool { return cpuid.CPU.Supports(s...) }

// lacking lists what this processor lacks of s: "AVX512F, AVX512BW"; "" where
// it has all.
func (s featureSet) lacking() string {
	var names []string
	for _, f := range s {
		if !cpuid.CPU.Supports(f) {
			names = append(names, f.String())
		}
	}
	return strings.Join(names, ", ")
}

func (s featureSet) String() string {
	names := make([]string, len(s))
	for i, f := range s {
		names[i] = f.String()
	}
	return strings.Join(names, ", ")
}

// hasAMX reports whether the processor has the matrix unit and the system lets
// this process use it.
func hasAMX() bool { return featuresAMX.here() && permitTiles() }

func init() {
	architectureTables = []string{"avx2", "avxvnni", "avx512", "avx512bf16", "amx"}
	lackingFor = func(table string) string {
		needs := map[string]featureSet{
			"avx2": featuresAVX2, "avxvnni": featuresAVXVNNI, "avx512": featuresAVX512, "avx512bf16": featuresAVX512BF16, "amx": featuresAMX,
		}[table]
		if needs == nil {
			return ""
		}
		if lacking := needs.lacking(); lacking != "" {
			return lacking
		}
		return "the system's leave to use the matrix unit"
	}
}
