//go:build !amd64 && !arm64

package cpu

var architectureTables []namedTable

func machineFeatures() []feature { return nil }
