// Package kernels holds the CUDA kernels: C++ sources, and the PTX that clang
// makes of them (make cuda-kernels), which is embedded.
package kernels

import (
	"embed"
	"fmt"
)

//go:embed *.ptx
var images embed.FS

// PTX returns the image of a source file (its name without .cu) for a compute
// capability: that of its architecture-specific build where there is one, else
// that of 8.0, which the driver translates for every later device.
func PTX(file string, major, minor int) ([]byte, error) {
	if major == 9 && minor == 0 {
		if image, err := images.ReadFile(file + ".sm_90a.ptx"); err == nil {
			return image, nil
		}
	}
	if major < 8 {
		return nil, fmt.Errorf("cuda: compute capability %d.%d: 8.0 or later is needed", major, minor)
	}
	image, err := images.ReadFile(file + ".sm_80.ptx")
	if err != nil {
		return nil, fmt.Errorf("cuda: no kernels %q", file)
	}
	return image, nil
}
