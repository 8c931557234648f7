//go:build amd64 || arm64

package kernels

// Pause makes a core that spins wait, for some ten to thirty hint instructions.
//
//go:noescape
func Pause()
