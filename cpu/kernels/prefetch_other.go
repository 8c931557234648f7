//go:build !amd64

package kernels

// prefetch is left to the hardware.
func Prefetch([]byte) {}
