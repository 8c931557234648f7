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
	defer e.Close()
	// It has no mask: whoever asks for drafts by masks is not given ar.
	mode := (*engine.ModeError)(nil)
	if o, err := e.Complete(decoder.Options{Draft: decoder.DraftMask}, 5); !errors.As(err, &mode) || err.Error() != "draft mask: mixture has no mask token in its config" {
		t.Errorf("drafts by masks, mode %s: %v", o.Mode, err)
	}
	for draft, want := range map[decoder.DraftChoice]decoder.Mode{"": decoder.AR, decoder.DraftNone: decoder.AR, decoder.DraftLookup: decoder.Verified, decoder.DraftAuto: decoder.Verified} {
		if o, err := e.Complete(decoder.Options{Draft: draft}, 5); err != nil || o.Mode != want {
			t.Errorf("draft %q: mode %s, %v, want %s", draft, o.Mode, err, want)
		}
	}
	if _, err = engine.Open(t.Context(), "", engine.Options{HostLayers: engine.AllLayers}); !errors.As(err, &option) || option.Option != "cpu-moe" {
		t.Errorf("experts of a dense model: %v", err)
	}
}
