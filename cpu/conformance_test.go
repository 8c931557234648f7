package cpu_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/conformance/backendtest"
	"windrow/cpu"
)

// sameExact names, for tables that differ from another one in arithmetic that
// rounds activations alone, that one: their exact arithmetic is tested there.
var sameExact = map[string]string{
	"avxvnni": "avx2", "avx512bf16": "avx512", "amx": "avx512", "neondot": "neon", "neoni8mm": "neon",
}

// TestConformance passes every kernel table of this machine through the suite,
// in both arithmetics; with -short and without CI set, the best one and AVX2's.
func TestConformance(t *testing.T) {
	tables := cpu.KernelTables()
	for _, name := range tables {
		if testing.Short() && os.Getenv("CI") == "" && name != tables[0] && name != tables[len(tables)-1] && name != "avx2" {
			t.Logf("left out: the table %s without CI set", name)
			continue
		}
		if testing.Short() && name == "neondot" && slices.Contains(tables, "neoni8mm") {
			t.Log("left out: neondot, minutes under an emulator, where neoni8mm is there: leave -short out")
			continue
		}
		for _, exact := range []bool{true, false} {
			kind := "default"
			if exact {
				kind = "exact"
				if slices.Contains(cpu.KernelTables(), sameExact[name]) {
					continue
				}
			} else if !cpu.RoundsActivations(name) {
				continue // the default is exact
			}
			if name == "go" && testing.Short() {
				continue // minutes under an emulator, and its code is the same everywhere
			}
			t.Run(name+" "+kind, func(t *testing.T) {
				open := func(t *testing.T) backend.Backend {
					b, err := cpu.New(cpu.Options{Kernels: name, Exact: exact, Threads: 2})
					if err != nil {
						t.Fatal(err)
					}
					return b
				}
				backendtest.Run(t, "../model/testdata/golden", open)
				backendtest.RunExperts(t, "../model/testdata/golden", open)
				backendtest.RunDelta(t, "../model/testdata/golden", open)
			})
		}
	}
}

// TestDeltaThreads: gated DeltaNet passes where key heads leave workers idle, and are cut into
// more items, and where there is one worker.
func TestDeltaThreads(t *testing.T) {
	for _, threads := range []int{1, 3} {
		t.Run(fmt.Sprint(threads), func(t *testing.T) {
			backendtest.RunDelta(t, "", func(t *testing.T) backend.Backend {
				b, err := cpu.New(cpu.Options{Threads: threads})
				if err != nil {
					t.Fatal(err)
				}
				return b
			})
		})
	}
}
