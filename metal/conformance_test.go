package metal

import (
	"context"
	"errors"
	"os"
	"runtime"
	"testing"

	"windrow/backend"
	"windrow/conformance/backendtest"
	"windrow/conformance/decodertest"
	"windrow/decoder"
	"windrow/metal/driver"
	"windrow/metal/emulator"
	"windrow/metal/fakeobjc"
	"windrow/model"
	"windrow/models/tinygsm"
)

// goldenDir has the golden models.
const goldenDir = "../model/testdata/golden"

// slow reports whether the long tiers run: the emulator takes minutes for what a
// GPU does at once.
var slow = os.Getenv("WINDROW_SLOW") != "" || runtime.GOOS == "darwin"

// emulated is a runtime with the emulated GPU.
func emulated(t *testing.T) (*driver.Runtime, *fakeobjc.Fake) {
	t.Helper()
	emulator.Available(t)
	fake := fakeobjc.Start(t, fakeobjc.Options{Compile: fakeobjc.Emulated(emulator.Plain, 0)})
	return driver.New(fake), fake
}

// countedBackend is a backend on an emulated GPU of its own, and what counts
// its messages.
func countedBackend(t *testing.T, o Options) (*Backend, *fakeobjc.Fake) {
	t.Helper()
	rt, fake := emulated(t)
	g, err := newGPU(rt)
	if err != nil {
		t.Fatal(err)
	}
	b := newBackend(g, o)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b, fake
}

// openBackend opens the GPU of a Mac, or an emulated one.
func openBackend(t *testing.T, exact bool) backend.Backend {
	t.Helper()
	if runtime.GOOS != "darwin" {
		b, _ := countedBackend(t, Options{Exact: exact})
		return b
	}
	b, err := New(Options{Exact: exact})
	if errors.Is(err, ErrNoDevice) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// TestConformance runs the suite: briefly in the default arithmetic, and with
// WINDROW_SLOW in both with the golden models. Exact arithmetic is compared
// with golden tensors by TestBatchedPrefillEqualsPerToken and TestTraces besides.
func TestConformance(t *testing.T) {
	if !slow {
		t.Log("left out: the suite in exact arithmetic and the golden models, minutes on the emulator: set WINDROW_SLOW=1")
		backendtest.RunBrief(t, func(t *testing.T) backend.Backend { return openBackend(t, false) })
		return
	}
	for name, exact := range map[string]bool{"default": false, "exact": true} {
		t.Run(name, func(t *testing.T) {
			backendtest.Run(t, goldenDir, func(t *testing.T) backend.Backend { return openBackend(t, exact) })
		})
	}
}

// traceProblems are those that run.
func traceProblems() []int {
	if slow {
		return nil
	}
	return decodertest.Quick[:1]
}

// TestTraces reproduces the golden traces with exact arithmetic; without
// WINDROW_SLOW ar, verified, and one trace of wedlm by its totals.
func TestTraces(t *testing.T) {
	if testing.Short() {
		t.Skip("minutes on the emulator: leave -short out")
	}
	if !tinygsm.Available {
		t.Skip("built without the embedded model")
	}
	b := openBackend(t, true)
	decodertest.RunVerified(t, b, traceProblems(), backend.KVF32)
	if slow {
		decodertest.Run(t, b, nil)
		return
	}
	t.Log("left out: all golden traces but a few, minutes on the emulator: set WINDROW_SLOW=1")
	p := decodertest.Problems(t)[decodertest.Quick[0]]
	trace := p.WeDLM[1] // the one with the fewest rows
	sum, err := generate(t.Context(), decodertest.Tiny(t, b), p.Prompt, trace.Options(), backend.KVF32)
	if err != nil {
		t.Fatal(err)
	}
	decodertest.CheckTotals(t, sum, trace)
}

// generate decodes one prompt.
func generate(ctx context.Context, m *model.Model, prompt []int32, o decoder.Options, kv backend.KVType) (decoder.Summary, error) {
	capacity, rows := decoder.CacheSize(len(prompt), o)
	c, err := m.NewCache(model.CacheOptions{Capacity: capacity, MaxRows: rows, DType: kv})
	if err != nil {
		return decoder.Summary{}, err
	}
	defer c.Close()
	return decoder.Generate(ctx, m, c, prompt, o, nil, decoder.Hooks{})
}

// TestVerified compares verified with ar in the default arithmetic, where
// batch invariance has to make them equal.
func TestVerified(t *testing.T) {
	if testing.Short() {
		t.Skip("minutes on the emulator: leave -short out")
	}
	b := openBackend(t, false)
	decodertest.RunVerified(t, b, traceProblems(), backend.KVBF16)
	if slow {
		decodertest.RunVerified(t, b, traceProblems(), backend.KVInt8)
	}
}
