//go:build !amd64

package kernels

// Prefetch is left to the hardware.
func Prefetch([]byte) {}
