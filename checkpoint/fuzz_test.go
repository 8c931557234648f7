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

// FuzzHybridCheckpoint begins with folders of hybrids, as Hugging Face and as MLX have
// them, flat and within a model that sees images.
func FuzzHybridCheckpoint(f *testing.F) {
	for _, form := range []struct {
		prefix string
		kernel []int
	}{{"model.", []int{4, 1, 3}}, {"language_model.model.", []int{4, 3, 1}}} {
		weights := writeSafetensors(f, nil, []RawTensor{
			raw(form.prefix+"layers.0.linear_attn.conv1d.weight", "F32", 0, form.kernel...), raw(form.prefix+"layers.0.linear_attn.A_log", "BF16", 0, 4),
			raw(form.prefix+"layers.0.input_layernorm.weight", "BF16", 0, 8), raw(form.prefix+"layers.3.self_attn.q_norm.weight", "F16", 0, 16), raw(form.prefix+"norm.weight", "F32", 0, 8),
			raw("mtp.fc.weight", "BF16", 0, 8, 16), raw("mtp.norm.weight", "BF16", 0, 8), raw("model.visual.proj.weight", "BF16", 0, 2, 2),
		})
		for _, config := range [][]byte{configWith(hybridWith("qwen3_next", nil)), configWith(hybridWith("qwen3_5", nil)), wrapper("qwen3_5_moe", nil, nil)} {
			if _, err := New(map[string][]byte{"config.json": config, "model.safetensors": weights}); err != nil {
				f.Fatal(err)
			}
			f.Add(config, weights)
		}
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
