package cpu

import "golang.org/x/sys/cpu"

func machineFeatures() []machineFeature {
	return []machineFeature{{"asimd", true}, {"asimddp", cpu.ARM64.HasASIMDDP}, {"i8mm", cpu.ARM64.HasI8MM}}
}
