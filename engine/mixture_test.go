package engine_test

import (
	"testing"

	"windrow/engine"
)

// TestMixtureWithoutGPU: a mixture of experts runs on the CPU by itself, and GPUs that
// cannot run it refuse it before they are looked for.
func TestMixtureWithoutGPU(t *testing.T) {
	const folder = "../model/testdata/golden/qwen3-moe-tiny"
	src, err := engine.OpenCheckpoint(t.Context(), folder)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	for want, o := range map[string]engine.Options{
		"mixture: metal: this backend has no mixture of experts yet, which the CPU runs":                  {Backend: engine.Metal},
		"mixture: cuda: this backend has no mixture of experts over several GPUs yet, which one GPU runs": {Backend: engine.CUDA, GPUs: 2},
	} {
		if _, err := engine.OpenSource(t.Context(), "mixture", src, o); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	e, err := engine.OpenSource(t.Context(), "mixture", src, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if e.BackendName() != "cpu" {
		t.Errorf("runs on %s", e.BackendName())
	}
}
