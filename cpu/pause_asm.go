//go:build amd64 || arm64

package cpu

// pause tells the core that it spins, for some ten to thirty hint instructions.
//
//go:noescape
func pause()
