package cpu

// pause tells the core that it spins, for some 10 PAUSE instructions.
//
//go:noescape
func pause()
