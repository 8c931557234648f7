package cpu

import "golang.org/x/sys/cpu"

// armFeature is what a table asks for of a processor.
type armFeature struct {
	feature
	what string // for people
}

var (
	asimd   = armFeature{feature{"asimd", true}, "NEON"}
	asimddp = armFeature{feature{"asimddp", cpu.ARM64.HasASIMDDP}, "SDOT (FEAT_DotProd)"}
	i8mm    = armFeature{feature{"i8mm", cpu.ARM64.HasI8MM}, "SMMLA (FEAT_I8MM)"}
)

// lacking is what this processor lacks; "" where it has it.
func (f armFeature) lacking() string {
	if f.has {
		return ""
	}
	return f.what
}

func machineFeatures() []feature { return []feature{asimd.feature, asimddp.feature, i8mm.feature} }
