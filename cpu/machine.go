package cpu

import (
	"github.com/klauspost/cpuid/v2"

	"windrow/cpu/kernels"
)

// Machine is what a processor calls itself ("" where it does not say), and
// those of its instruction sets that decide which kernels it can run, in a
// fixed order, whichever kernels are chosen.
func Machine() (name string, features []string) {
	features = []string{}
	for _, f := range kernels.MachineFeatures() {
		if f.Has {
			features = append(features, f.Name)
		}
	}
	return cpuid.CPU.BrandName, features
}
