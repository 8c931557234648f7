//go:build !amd64 && !arm64

package kernels

var architectureTables []namedTable

// MachineFeatures is empty: there is the reference alone.
func MachineFeatures() []Feature { return nil }
