package model_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/cpu"
	"windrow/model"
)

// A folder that MLX wrote: see its README.md. Its header does not end at a
// multiple of 8, so that no tensor is aligned, and names are in another order
// than their data.
const mlxFolder = "testdata/mlx"

func TestMLXWeights(t *testing.T) {
	var want map[string]string
	data, err := os.ReadFile(filepath.Join(mlxFolder, "reference.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.Open(mlxFolder)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if len(c.Names()) != len(want) || len(want) != 13 {
		t.Errorf("%d tensors, want %d", len(c.Names()), len(want))
	}
	type format struct {
		dtype backend.DType
		group int
	}
	seen := map[format]bool{}
	wide := widen(c)
	for name, sum := range want {
		raw, _ := c.Tensor(name)
		seen[format{raw.DType, raw.Group}] = true
		x, _ := wide.Tensor(name)
		if got := sha256.Sum256(x.Data); hex.EncodeToString(got[:]) != sum {
			t.Errorf("%s (%v): weights differ", name, raw.DType)
		}
	}
	for _, f := range []format{{backend.Affine4, 64}, {backend.Affine4, 32}, {backend.Affine8, 64}, {backend.Affine8, 128}, {backend.BF16, 0}} {
		if !seen[f] {
			t.Errorf("no tensor in %v, groups of %d", f.dtype, f.group)
		}
	}
}

// Measured: 7e-7 in f32, 3e-2 with activations in 8 bits.
func TestMLXLogits(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(mlxFolder, "golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	golden, err := checkpoint.ReadSafetensors(data)
	if err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.Open(mlxFolder)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for exact, tolerance := range map[bool]float64{true: 1e-5, false: 6e-2} {
		b, err := cpu.New(cpu.Options{Threads: 2, Exact: exact})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		m, err := model.Load(b, c)
		if err != nil {
			t.Fatal(err)
		}
		deviations, err := m.Validate(t.Context(), golden, model.ValidateOptions{KV: backend.KVF32})
		if err != nil {
			t.Fatal(err)
		}
		if len(deviations) != 1 {
			t.Fatalf("%d entries, want the prompt's logits", len(deviations))
		}
		if d := deviations[0]; math.IsNaN(d.RelativeNorm) || d.RelativeNorm > tolerance {
			t.Errorf("exact %v: logits %.2g from those of the widened weights, want at most %g", exact, d.RelativeNorm, tolerance)
		}
	}
}
