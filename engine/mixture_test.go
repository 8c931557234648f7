package engine_test

import (
	"testing"

	"windrow/engine"
)

// TestMixtureOverGPUs: several GPUs refuse a mixture of experts before they are looked
// for, in one line; whatever is there by itself runs it.
func TestMixtureOverGPUs(t *testing.T) {
	const folder = "../model/testdata/golden/qwen3-moe-tiny"
	src, err := engine.OpenCheckpoint(t.Context(), folder)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	_, err = engine.OpenSource(t.Context(), "mixture", src, engine.Options{Backend: engine.CUDA, GPUs: 2})
	if want := "mixture: cuda: this backend has no mixture of experts over several GPUs yet, which one GPU runs"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	e, err := engine.OpenSource(t.Context(), "mixture", src, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e.Close()
}
