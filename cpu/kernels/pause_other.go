//go:build !amd64 && !arm64

package kernels

import "runtime"

// pause yields while a worker spins.
func Pause() {
	runtime.Gosched()
}
