package kernels

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
	// use it, too (lackingAMX).
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

// lackingAMX is lacking for the matrix unit, which the system must let this
// process use, too.
func lackingAMX() string {
	lacking := featuresAMX.lacking()
	if lacking == "" && !permitTiles() {
		lacking = "the system's leave to use the matrix unit"
	}
	return lacking
}

// allFeatures are those of all sets, in the order in which MachineFeatures lists
// them. BMI2 has no set of its own; Haswell had it first.
var allFeatures = featuresAVX2.and(cpuid.BMI2).and(featuresAVXVNNI...).and(featuresVBMI...).and(featuresAVX512BF16...).and(featuresAMXInt8...)

// linuxNames are what Linux calls them.
var linuxNames = map[cpuid.FeatureID]string{
	cpuid.AVX2: "avx2", cpuid.FMA3: "fma", cpuid.F16C: "f16c", cpuid.BMI2: "bmi2", cpuid.AVXVNNI: "avx_vnni",
	cpuid.AVX512F: "avx512f", cpuid.AVX512BW: "avx512bw", cpuid.AVX512DQ: "avx512dq", cpuid.AVX512VL: "avx512vl",
	cpuid.AVX512VNNI: "avx512_vnni", cpuid.AVX512VBMI: "avx512vbmi", cpuid.AVX512BF16: "avx512_bf16",
	cpuid.AMXTILE: "amx_tile", cpuid.AMXBF16: "amx_bf16", cpuid.AMXINT8: "amx_int8",
}

// MachineFeatures lists the instruction sets that tables ask for, in a fixed order.
func MachineFeatures() (list []Feature) {
	for _, f := range allFeatures {
		list = append(list, Feature{linuxNames[f], cpuid.CPU.Supports(f)})
	}
	return list
}
