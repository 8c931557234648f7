package checkpoint_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"windrow/architecture"
	"windrow/backend"
	"windrow/checkpoint"
	"windrow/models/tinygsm"
	"windrow/synthetic"
)

// models opens every model among the test data of the repository that has
// weights, the embedded one, and an empty one of each published shape.
func models(t *testing.T) map[string]checkpoint.Source {
	t.Helper()
	found := map[string]checkpoint.Source{}
	const data = "../model/testdata"
	var paths []string
	for _, pattern := range []string{"golden/*/model.safetensors", "published/*/model.safetensors"} {
		files, err := filepath.Glob(filepath.Join(data, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			paths = append(paths, filepath.Dir(file))
		}
	}
	files, err := filepath.Glob(filepath.Join(data, "llama.cpp/*.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.Contains(file, "-of-") || strings.Contains(file, "-00001-of-") {
			paths = append(paths, file)
		}
	}
	for _, path := range paths {
		c, err := checkpoint.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		found[path] = c
	}
	if len(found) < 15 {
		t.Errorf("only %d models among the test data: %v", len(found), paths)
	}
	if tinygsm.Available {
		c, err := checkpoint.New(tinygsm.Files())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		found["tiny-gsm"] = c
	}
	for _, name := range synthetic.ShapeNames() {
		c, _ := synthetic.ShapeConfig(name)
		found["shape "+name] = synthetic.EmptySource(c, backend.BF16)
	}
	return found
}

// Every tensor of every model is in the table of its architecture, with its
// shape; and what the table demands is there.
func TestModelsAreInTheTables(t *testing.T) {
	for name, src := range models(t) {
		c := src.Config()
		a, err := architecture.Lookup(c.Architecture)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		names := map[string]bool{}
		for _, n := range src.Names() {
			names[n] = true
			x, ok := src.Tensor(n)
			p, known := a.Find(c, n)
			if !ok || !known || fmt.Sprint(x.Shape) != fmt.Sprint(p.Shape) {
				t.Errorf("%s: %s of shape %v: the table of %s has it as %v, %v", name, n, x.Shape, a.Name, p.Shape, known)
			}
		}
		for _, p := range a.Tensors(c) {
			if needed := p.Need == architecture.Required || p.Need == architecture.NeededUntied && !c.TieEmbeddings; needed && !names[p.Name] {
				t.Errorf("%s: the table of %s demands %s, which is not there", name, a.Name, p.Name)
			}
		}
		if len(names) == 0 {
			t.Errorf("%s has no tensors", name)
		}
	}
}

// A tensor whose layout differs in GGUF files is restored when the file is
// opened, and an error of that names the tensor.
func TestGGUFLayouts(t *testing.T) {
	a, err := architecture.Lookup("qwen3")
	if err != nil {
		t.Fatal(err)
	}
	row, _, ok := a.FromGGUF(&checkpoint.Config{}, "blk.0.ffn_up.weight")
	if !ok {
		t.Fatal("no ffn_up")
	}
	defer func() { row.Restore = nil }()
	row.Restore = func(c *architecture.Config, x backend.Tensor) (backend.Tensor, error) {
		if c.HiddenSize != 256 || x.Name != "model.layers.0.mlp.up_proj.weight" {
			t.Errorf("restores %s of a model of %d", x.Name, c.HiddenSize)
		}
		return backend.Tensor{Name: x.Name, DType: backend.F32, Shape: []int{1, 1, 2}, Data: make([]byte, 8)}, nil
	}
	const path = "../model/testdata/llama.cpp/q4_k_m.gguf"
	c, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if x, _ := c.Tensor("model.layers.0.mlp.up_proj.weight"); fmt.Sprint(x.Shape) != "[1 1 2]" {
		t.Errorf("up_proj has shape %v", x.Shape)
	}
	if x, _ := c.Tensor("model.layers.0.mlp.gate_proj.weight"); len(x.Shape) != 2 {
		t.Errorf("gate_proj has shape %v", x.Shape)
	}
	row.Restore = func(*architecture.Config, backend.Tensor) (backend.Tensor, error) {
		return backend.Tensor{}, errors.New("an odd layout")
	}
	if _, err := checkpoint.Open(path); err == nil || !strings.Contains(err.Error(), `gguf tensor "blk.0.ffn_up.weight": an odd layout`) {
		t.Errorf("error %v", err)
	}
}
