package checkpoint

import (
	"fmt"
	"testing"
)

// FuzzAffineCheckpoint begins with models in MLX's groups.
func FuzzAffineCheckpoint(f *testing.F) {
	files := affineFiles(f, nil)
	f.Add(files["config.json"], files["1.safetensors"])
	f.Add(files["config.json"], files["2.safetensors"])
	f.Add([]byte(smallConfig), writeSafetensors(f, nil, []RawTensor{raw("a.weight", "U32", 1, 0, 1<<20), raw("a.scales", "BF16", 1, 0, 1)}))
	f.Fuzz(opensWhole)
}

// FuzzPublishedCheckpoint begins with models of each other method.
func FuzzPublishedCheckpoint(f *testing.F) {
	for _, p := range publishedCases() {
		files := p.files(f, nil)
		f.Add(files["config.json"], files["model.safetensors"])
	}
	f.Fuzz(opensWhole)
}

// opensWhole: whatever config and header say, a checkpoint that opens has only
// tensors whose sizes agree, or that are made, of the size that was said, or
// refused.
func opensWhole(t *testing.T, config, weights []byte) {
	c, err := New(map[string][]byte{"config.json": config, "model.safetensors": weights})
	if err != nil {
		return
	}
	for _, name := range c.Names() {
		x, ok := c.Tensor(name)
		if !ok {
			t.Fatalf("%s is listed and not there", name)
		}
		if x.Make == nil {
			if x.DType.Affine() {
				if err := x.Check(); err != nil {
					t.Fatal(err)
				}
			}
			continue
		}
		if x.Bytes() > 64*len(weights)+4096 {
			t.Fatalf("%s takes %d bytes, of a file of %d", name, x.Bytes(), len(weights))
		}
		y, err := x.Make(t.Context())
		if err != nil {
			continue
		}
		if err := y.Check(); err != nil || y.Bytes() != x.Bytes() || fmt.Sprint(y.Shape) != fmt.Sprint(x.Shape) {
			t.Fatalf("%v, described as %v of %d: %v", y.Shape, x.Shape, x.Bytes(), err)
		}
	}
	Inspect(c)
}
