package kernels

import "golang.org/x/sys/cpu"

// armFeature is what a table asks for of a processor.
type armFeature struct {
	Feature
	what string // for people
}

var (
	asimd   = armFeature{Feature{"asimd", true}, "NEON"}
	asimddp = armFeature{Feature{"asimddp", cpu.ARM64.HasASIMDDP}, "SDOT (FEAT_DotProd)"}
	i8mm    = armFeature{Feature{"i8mm", cpu.ARM64.HasI8MM}, "SMMLA (FEAT_I8MM)"}
)

// lacking is what this processor lacks; "" where it has it.
func (f armFeature) lacking() string {
	if f.Has {
		return ""
	}
	return f.what
}

// MachineFeatures lists the instruction sets that tables ask for, in a fixed order.
func MachineFeatures() []Feature { return []Feature{asimd.Feature, asimddp.Feature, i8mm.Feature} }
