package main

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"windrow/bench"
	"windrow/client"
	"windrow/decoder"
	"windrow/engine"
)

// TestAdvised: what the packages say without flags names them here, keeps what
// stands around it, and has its exit code.
func TestAdvised(t *testing.T) {
	for _, test := range []struct {
		err   error
		want  string
		usage bool
	}{
		{nil, "", false},
		{io.EOF, "EOF", false},
		{usagef("--x"), "--x", true},
		{&engine.ContextError{Model: "m", PromptTokens: 9, MaxTokens: 8, Context: 16}, "the prompt has 9 tokens and --max-tokens is 8, the context of m is 16", false},
		{&engine.ContextError{Model: "m", PromptTokens: 16, Context: 16}, "the prompt has 16 tokens, the context of m is 16: nothing can be generated", false},
		{&engine.TemplateError{Model: "m"}, "m has no chat template: use --raw", false},
		{&engine.ModeError{Model: "m", Mode: decoder.WeDLM}, "--mode wedlm: m has no mask token in its config: use --mode ar, or --mask-id", true},
		{&engine.ModeError{Model: "m", Mode: decoder.WeDLM, Recurrent: true}, "--mode wedlm: m has recurrent layers, which take tokens in their order: use --mode ar or verified", true},
		{&engine.ModeError{Model: "m", Mode: decoder.Verified, Draft: decoder.DraftMask}, "--mode verified with --draft mask: m has no mask token in its config: use --draft lookup, --mode ar, or --mask-id", true},
		{&engine.MaskError{Model: "m", ID: 7, Vocabulary: 5}, "--mask-id 7: m has ids 0 to 4", true},
		{&engine.BiasError{Model: "m", ID: 7, Bias: -2.5, Vocabulary: 5}, "--logit-bias 7=-2.5: m has ids 0 to 4", true},
		{&client.Error{Status: 400, Code: "invalid_value", Message: "draft: m has no head"}, "the server says: draft: m has no head (status 400)", true},
		{&client.Error{Status: 400, Code: "context_length_exceeded", Message: "long"}, "the server says: long (status 400)", false},
		{&decoder.OptionError{Option: "window", Got: "0", Want: "more"}, "--window 0: want more", true},
		{&decoder.OptionError{Option: "prompt", Got: "is empty", Want: "one token"}, "prompt is empty: want one token", true},
		{&decoder.OptionError{Option: "cpu-moe", Got: "whatever", Want: "less"}, "--cpu-moe: want less", true},
		{&engine.MemoryError{Backend: engine.CUDA, Device: "G", Need: 3 << 30, Free: 1 << 30, HostLayers: 9},
			"cuda: the weights take 3 GiB, G can use 1 GiB; there is room for all but the experts of 9 layers: --n-cpu-moe 9 leaves them in host memory", false},
		{&bench.FitError{Tokens: 9, Rows: 8, Context: 16}, "9 tokens and 8 rows: the model's context is 16", true},
		{engine.ErrEmptyPrompt, "the prompt is empty", true},
		{engine.ErrNoEmbeddedModel, "this binary has no embedded model: name a model folder or a .gguf file", true},
	} {
		var usage *usageError
		got := advised(test.err)
		if test.err == nil {
			if got != nil {
				t.Errorf("nil became %v", got)
			}
			continue
		}
		if got.Error() != test.want || errors.As(got, &usage) != test.usage {
			t.Errorf("%v: %q, usage %t, want %q, %t", test.err, got, errors.As(got, &usage), test.want, test.usage)
		}
		if !errors.Is(got, test.err) {
			t.Errorf("%v: lost", test.err)
		}
		inner := fmt.Errorf("problem 3: %w", test.err)
		if got := advised(inner); got.Error() != "problem 3: "+test.want || errors.As(got, &usage) != test.usage {
			t.Errorf("%v: %q, usage %t", inner, got, errors.As(got, &usage))
		}
	}
}
