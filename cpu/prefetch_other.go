//go:build !amd64

package cpu

// prefetch is left to the hardware.
func prefetch([]byte) {}
