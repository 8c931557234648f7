//go:build !amd64 && !arm64

package kernels

import "runtime"

// Pause yields while a worker spins.
func Pause() {
	runtime.Gosched()
}
