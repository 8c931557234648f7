//go:build amd64 || arm64

package kernels

// pause tells the core that it spins, for some ten to thirty hint instructions.
//
//go:noescape
func Pause()
