package engine_test

import (
	"testing"

	"windrow/engine"
)

// TestMixtureOverGPUs: GPUs that cannot share a mixture of experts are refused before they
// are looked for, in one line; whatever is there by itself runs it.
func TestMixtureOverGPUs(t *testing.T) {
	const folder = "../model/testdata/golden/qwen3-moe-tiny"
	src, err := engine.OpenCheckpoint(t.Context(), folder)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	_, err = engine.OpenSource(t.Context(), "mixture", src, engine.Options{Backend: engine.CUDA, GPUs: 3})
	if want := "mixture: 3 GPUs cannot share this model: 2 KV heads do not divide by 3; it runs on 1, 2"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	e, err := engine.OpenSource(t.Context(), "mixture", src, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e.Close()
}
