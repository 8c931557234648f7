package cpu_test

import (
	"testing"

	"windrow/backend"
	"windrow/backend/backendtest"
	"windrow/cpu"
)

// integersOnly are the tables that differ from another one, avx2 or neon, in the
// integer arithmetic alone, so that their exact one is tested there.
var integersOnly = map[string]bool{"avxvnni": true, "neondot": true, "neoni8mm": true}

// TestConformance passes every kernel table of this machine through the suite,
// in both arithmetics.
func TestConformance(t *testing.T) {
	for _, name := range cpu.KernelTables() {
		for _, exact := range []bool{true, false} {
			kind := "default"
			if exact {
				kind = "exact"
				if integersOnly[name] {
					continue
				}
			} else if !cpu.RoundsActivations(name) {
				continue // the default is exact
			}
			if name == "go" && testing.Short() {
				continue // minutes under an emulator, and its code is the same everywhere
			}
			t.Run(name+" "+kind, func(t *testing.T) {
				backendtest.Run(t, "../model/testdata/golden", func(t *testing.T) backend.Backend {
					b, err := cpu.New(cpu.Options{Kernels: name, Exact: exact, Threads: 2})
					if err != nil {
						t.Fatal(err)
					}
					return b
				})
			})
		}
	}
}
