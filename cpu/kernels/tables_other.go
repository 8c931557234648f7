//go:build !amd64 && !arm64

package kernels

var architectureTables []namedTable

func MachineFeatures() []Feature { return nil }
