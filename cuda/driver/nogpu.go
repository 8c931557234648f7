//go:build windrow_nogpu

package driver

// built reports whether this build can open libraries. Without purego a binary for Linux
// is static: it runs where there is no glibc, and no GPU's driver could be loaded.
const built = false

// Call is not reached: there is no library whose functions could be called.
func Call(uintptr, ...uintptr) int32 { return codeNotBuilt }

// CallBlock is not reached, like Call.
func CallBlock(uintptr, []uintptr) int32 { return codeNotBuilt }

// codeNotBuilt is CUDA_ERROR_UNKNOWN.
const codeNotBuilt = 999
