package decoder

import (
	"errors"
	"math"
	"strings"
	"testing"

	"windrow/model"
)

func TestValidate(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		change func(*Options)
		want   string // "" is valid
	}{
		{func(*Options) {}, ""},
		{func(o *Options) { o.EntropyThreshold = nil }, ""},
		{func(o *Options) { o.EntropyThreshold = &inf }, ""},
		{func(o *Options) { o.PrefillRows = 0 }, ""},
		{func(o *Options) { o.Mode, o.Window, o.Vocabulary.MaskID = AR, 0, -1 }, ""},
		{func(o *Options) {
			o.Sampling = Sampling{Temperature: 2, TopP: 1, MinP: 1, LogitBias: map[int32]float32{1: -inf}}
		}, ""},
		{func(o *Options) { o.Mode = "beam" }, `mode "beam": want ar, wedlm or verified`},
		{func(o *Options) { o.Window = 0 }, "window 0: want a number from 1 to 1024"},
		{func(o *Options) { o.Window = 1025 }, "window 1025: want a number from 1 to 1024"},
		{func(o *Options) { o.Mode, o.Window = AR, -1 }, "window -1"},
		{func(o *Options) { o.EntropyThreshold = threshold(-.1) }, "entropy-threshold -0.1: want none or"},
		{func(o *Options) { o.EntropyThreshold = &nan }, "entropy-threshold NaN"},
		{func(o *Options) { o.PosPenalty = -1 }, "pos-penalty -1"},
		{func(o *Options) { o.PosPenalty = nan }, "pos-penalty NaN"},
		{func(o *Options) { o.PosPenalty = inf }, "pos-penalty +Inf"},
		{func(o *Options) { o.MaxTokens = 0 }, "max-tokens 0: want a number from 1"},
		{func(o *Options) { o.PrefillRows = -1 }, "prefill-rows -1"},
		{func(o *Options) { o.Vocabulary.MaskID = -1 }, "mask-id none: want an id: mode verified needs a mask token"},
		{func(o *Options) { o.Vocabulary.Size = -1 }, "vocabulary size -1"},
		{func(o *Options) { o.StopIDs = []int32{1, -2} }, "stop id -2"},
		{func(o *Options) { o.StopStrings = []string{""} }, `stop "": want a string that is not empty`},
		{func(o *Options) { o.Sampling.Temperature = -1 }, "temperature -1"},
		{func(o *Options) { o.Sampling.Temperature = nan }, "temperature NaN"},
		{func(o *Options) { o.Sampling.Temperature = inf }, "temperature +Inf"},
		{func(o *Options) { o.Sampling.TopK = -1 }, "top-k -1"},
		{func(o *Options) { o.Sampling.TopP = 1.1 }, "top-p 1.1: want a number from 0 to 1"},
		{func(o *Options) { o.Sampling.MinP = -.1 }, "min-p -0.1"},
		{func(o *Options) { o.Sampling.RepetitionPenalty = -1 }, "repetition-penalty -1"},
		{func(o *Options) { o.Sampling.PresencePenalty = 2.5 }, "presence-penalty 2.5: want a number from -2 to 2"},
		{func(o *Options) { o.Sampling.FrequencyPenalty = nan }, "frequency-penalty NaN"},
		{func(o *Options) { o.Sampling.LogitBias = map[int32]float32{-1: 0} }, "logit-bias of id -1"},
		{func(o *Options) { o.Sampling.LogitBias = map[int32]float32{7: 101} }, "logit-bias 101 of id 7"},
		{func(o *Options) { o.Sampling.LogitBias = map[int32]float32{7: inf} }, "logit-bias +Inf of id 7"},
	} {
		o := DefaultOptions()
		o.Vocabulary.MaskID = 5
		c.change(&o)
		err := o.Validate()
		var option *OptionError
		switch {
		case c.want == "" && err != nil:
			t.Errorf("error %q, want none", err)
		case c.want != "" && (!errors.As(err, &option) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("error %v, want an OptionError with %q", err, c.want)
		}
	}
}

func TestRequestErrors(t *testing.T) {
	m := newToy(t, 1)
	o := toyOptions(Verified, m)
	stops := o
	stops.StopStrings = []string{"x"}
	run := func(capacity int, prompt []int32, o Options) error {
		_, err := Generate(t.Context(), m, model.NewCountingCache(capacity), prompt, o, nil, Hooks{})
		return err
	}
	var option *OptionError
	if err := run(100, nil, o); !errors.As(err, &option) || err.Error() != "prompt is empty: want at least one token" {
		t.Errorf("empty prompt: %v", err)
	}
	if err := run(100, []int32{1, -7}, o); !errors.As(err, &option) || !strings.Contains(err.Error(), "id -7 at 1") {
		t.Errorf("negative id: %v", err)
	}
	if err := run(100, []int32{1}, stops); !errors.As(err, &option) {
		t.Errorf("stop strings without a detokenizer: %v", err)
	}
	// 24 tokens behind a prompt of 3 need 27.
	var over *ContextError
	if err := run(26, []int32{1, 2, 3}, o); !errors.As(err, &over) || over.Capacity != 26 ||
		err.Error() != "context overflow: 3 prompt tokens + 24 max tokens = 27, the context holds 26" {
		t.Errorf("context overflow: %v", err)
	}
	if err := run(27, []int32{1, 2, 3}, o); err != nil {
		t.Errorf("a context that is just enough: %v", err)
	}
	cache := model.NewCountingCache(100)
	if _, err := Generate(t.Context(), m, cache, []int32{1, 2, 3}, o, nil, Hooks{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Generate(t.Context(), m, cache, []int32{1}, o, nil, Hooks{}); err == nil || !strings.Contains(err.Error(), "want at most the 1 of the prompt") {
		t.Errorf("a cache past its prompt: %v", err)
	}
	if err := o.check([]int32{1}, 0, 100, 11, false); !errors.As(err, &option) || !strings.Contains(err.Error(), "window 6: want at most 5") {
		t.Errorf("a cache of too few rows a forward: %v", err)
	}
}

func TestCacheSize(t *testing.T) {
	o := DefaultOptions()
	for _, c := range []struct {
		prompt, max, window   int
		mode                  Mode
		wantCapacity, maxRows int
	}{
		{100, 50, 16, WeDLM, 150, 100},
		{10, 50, 16, Verified, 60, 32},
		{10, 5, 16, Verified, 15, 10},
		{1, 5, 16, AR, 6, 1},
		{2000, 5, 16, AR, 2005, 512},
		{1, 5, 16, WeDLM, 6, 5},
	} {
		o.Mode, o.MaxTokens, o.Window = c.mode, c.max, c.window
		if capacity, rows := CacheSize(c.prompt, o); capacity != c.wantCapacity || rows != c.maxRows {
			t.Errorf("%+v: capacity %d, rows %d", c, capacity, rows)
		}
	}
}
