package cuda

import (
	"os"
	"testing"

	"windrow/backend"
	"windrow/conformance/backendtest"
	"windrow/conformance/decodertest"
	"windrow/cuda/emulator"
)

// goldenDir has the golden models.
const goldenDir = "../model/testdata/golden"

func openBackend(t testing.TB, exact bool) backend.Backend {
	t.Helper()
	b, err := New(Options{Exact: exact, Library: emulator.Driver(t)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestConformance runs the suite in both arithmetics. On the emulator, without
// WINDROW_SLOW, of the golden models only the smaller ones, in default arithmetic one.
func TestConformance(t *testing.T) {
	golden := goldenDir
	if testing.Short() {
		golden = ""
	}
	exact, rounded := []string{"qwen3-untied", "qwen3-yarn"}, []string{"qwen3-yarn"}
	if emulator.OnGPU || os.Getenv("WINDROW_SLOW") != "" {
		exact, rounded = nil, nil
	} else {
		t.Log("left out: the larger golden models, minutes on the emulator: set WINDROW_SLOW=1")
	}
	t.Run("exact", func(t *testing.T) {
		if testing.Short() && !emulator.OnGPU {
			t.Skip("the suite in exact arithmetic on the emulator: leave -short out")
		}
		backendtest.Run(t, golden, func(t *testing.T) backend.Backend { return openBackend(t, true) }, exact...)
	})
	t.Run("default", func(t *testing.T) {
		if testing.Short() && !emulator.OnGPU {
			backendtest.RunShort(t, func(t *testing.T) backend.Backend { return openBackend(t, false) })
			return
		}
		backendtest.Run(t, golden, func(t *testing.T) backend.Backend { return openBackend(t, false) }, rounded...)
	})
}

// traceProblems are those that run: all of them on a GPU or with WINDROW_SLOW.
func traceProblems() []int {
	if emulator.OnGPU || os.Getenv("WINDROW_SLOW") != "" {
		return nil
	}
	return decodertest.Quick[:1]
}

// TestTraces reproduces the golden traces.
func TestTraces(t *testing.T) {
	if testing.Short() {
		t.Skip("minutes on the emulator: leave -short out")
	}
	b := openBackend(t, true)
	defer b.Close()
	if traceProblems() != nil {
		t.Log("left out: all golden traces but one problem's, minutes on the emulator: set WINDROW_SLOW=1")
	}
	decodertest.Run(t, b, traceProblems())
	decodertest.RunVerified(t, b, traceProblems(), backend.KVF32)
}

// TestVerified compares verified with ar in the default arithmetic, where
// batch invariance has to make them equal.
func TestVerified(t *testing.T) {
	if testing.Short() {
		t.Skip("minutes on the emulator: leave -short out")
	}
	b := openBackend(t, false)
	defer b.Close()
	for _, kv := range []backend.KVType{backend.KVBF16, backend.KVInt8} {
		decodertest.RunVerified(t, b, traceProblems(), kv)
	}
}
