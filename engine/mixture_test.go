package engine_test

import (
	"runtime"
	"testing"

	"windrow/engine"
)

// TestMixtureWithoutGPU: a mixture of experts runs on the CPU by itself, and a GPU that
// is asked for refuses it before it is looked for.
func TestMixtureWithoutGPU(t *testing.T) {
	const folder = "../model/testdata/golden/qwen3-moe-tiny"
	src, err := engine.OpenCheckpoint(t.Context(), folder)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	for _, name := range []string{engine.CUDA} {
		_, err := engine.OpenSource(t.Context(), "mixture", src, engine.Options{Backend: name})
		if want := "mixture: " + name + ": this backend has no mixture of experts yet, which the CPU runs"; err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	e, err := engine.OpenSource(t.Context(), "mixture", src, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if e.BackendName() != "cpu" && runtime.GOOS != "darwin" { // a Mac has a GPU for it
		t.Errorf("runs on %s", e.BackendName())
	}
}
