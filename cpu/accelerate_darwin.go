package cpu

import (
	"fmt"

	"github.com/ebitengine/purego"
)

const accelerateLibrary = "/System/Library/Frameworks/Accelerate.framework/Accelerate"

// openAccelerate binds cblas_sgemm. Not yet run on hardware.
func openAccelerate() (sgemm, error) {
	library, err := purego.Dlopen(accelerateLibrary, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("cannot be opened: %w", err)
	}
	address, err := purego.Dlsym(library, "cblas_sgemm")
	if err != nil {
		return nil, fmt.Errorf("has no cblas_sgemm: %w", err)
	}
	// SyscallN passes no floats.
	var f cblasSgemm
	purego.RegisterFunc(&f, address)
	return f.product, nil
}
