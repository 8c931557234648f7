package engine_test

import (
	"errors"
	"testing"

	"windrow/decoder"
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
	if want := "mixture: 3 GPUs cannot share this model: 2 KV heads do not divide by 3; it runs on 1, 2, 4"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	var option *decoder.OptionError
	if _, err = engine.OpenSource(t.Context(), "mixture", src, engine.Options{HostLayers: 5}); !errors.As(err, &option) || option.Want != "at most 4, the model's layers" {
		t.Errorf("experts of more layers than there are: %v", err)
	}
	e, err := engine.OpenSource(t.Context(), "mixture", src, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e.Close()
	if _, err = engine.Open(t.Context(), "", engine.Options{HostLayers: engine.AllLayers}); !errors.As(err, &option) || option.Option != "cpu-moe" {
		t.Errorf("experts of a dense model: %v", err)
	}
}
