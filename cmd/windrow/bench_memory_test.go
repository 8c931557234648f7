package main

import (
	"fmt"
	"testing"

	"windrow/backend"
	"windrow/synthetic"
)

// TestCheckRandom: weights that a machine has no memory for are refused in one line, before
// any of them are made.
func TestCheckRandom(t *testing.T) {
	config, ok := synthetic.ShapeConfig("qwen3-30b-a3b")
	if !ok {
		t.Fatal("no shape")
	}
	for _, c := range []struct {
		dtype backend.DType
		total int64
		want  string
	}{
		{backend.BF16, 0, ""},
		{backend.BF16, 128 << 30, ""},
		{backend.Affine4, 24 << 30, ""},
		{backend.BF16, 24 << 30, "--shape qwen3-30b-a3b: bf16 weights take 56.9 GiB of memory, and this machine has 24 GiB; with --dtype affine4 they take 16.8 GiB"},
		{backend.BF16, 8 << 30, "--shape qwen3-30b-a3b: bf16 weights take 56.9 GiB of memory, and this machine has 8 GiB"},
		{backend.Affine4, 8 << 30, "--shape qwen3-30b-a3b: affine4 weights take 16.8 GiB of memory, and this machine has 8 GiB"},
	} {
		err := checkRandom("qwen3-30b-a3b", config, c.dtype, c.total)
		if got := fmt.Sprint(err); c.want == "" && err != nil || c.want != "" && got != c.want {
			t.Errorf("%v of %d bytes: %q, want %q", c.dtype, c.total, got, c.want)
		}
	}
}
