//go:build !amd64 && !arm64

package cpu

import "runtime"

// pause yields while a worker spins.
func pause() {
	runtime.Gosched()
}
