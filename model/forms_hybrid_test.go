package model_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/quant"
)

// TestFormsOfHybrids: a hybrid has the same bits in each form that files have it in.
func TestFormsOfHybrids(t *testing.T) {
	type change func(f *form) checkpoint.Source
	folder := func(edit func(f *form)) change {
		return func(f *form) checkpoint.Source {
			edit(f)
			return f.open(t)
		}
	}
	forms := map[string]map[string]change{
		"qwen3-next-tiny": {
			"fused":   folder(func(f *form) { f.stacked(fusedExperts) }),
			"stacked": folder(func(f *form) { f.stacked(stackExperts) }),
			"mlx":     folder(func(f *form) { f.asMLX(t) }),
			"gguf, stacked": func(f *form) checkpoint.Source {
				f.flatDelta()
				f.stacked(stackExperts)
				return f.gguf(t, "qwen3next")
			},
			"gguf, gates and ups together": func(f *form) checkpoint.Source {
				f.flatDelta()
				f.stacked(map[string][]string{"experts.gate_up_proj": {"gate_proj", "up_proj"}, "switch_mlp.down_proj.weight": {"down_proj"}})
				return f.gguf(t, "qwen3next")
			},
			"gguf, all in f32": func(f *form) checkpoint.Source {
				f.flatDelta()
				f.stacked(stackExperts)
				f.inF32(t)
				return f.gguf(t, "qwen3next")
			},
			"gguf, q, k, v and z as they were": func(f *form) checkpoint.Source {
				f.stacked(stackExperts)
				return f.gguf(t, "qwen3next")
			},
		},
		"qwen3-next-long": {
			"fused": folder(func(f *form) { f.stacked(fusedExperts) }),
			"mlx":   folder(func(f *form) { f.asMLX(t) }),
			"flat":  folder((*form).flatDelta),
		},
		"qwen3-5-drafts": {
			"no drafts": folder((*form).withoutDrafts),
			"wrapped":   folder(func(f *form) { f.wrapped("qwen3_5", "model.language_model.", "lm_head.weight") }),
			"mlx, wrapped": folder(func(f *form) {
				f.asMLX(t)
				f.wrapped("qwen3_5", "language_model.model.", "language_model.lm_head.weight")
			}),
		},
		"qwen3-5-moe-tiny": {
			"apart":     folder((*form).apart),
			"mlx":       folder(func(f *form) { f.asMLX(t) }),
			"no drafts": folder((*form).withoutDrafts),
			"wrapped":   folder(func(f *form) { f.wrapped("qwen3_5_moe", "model.language_model.", "") }),
			"wrapped, apart": folder(func(f *form) {
				f.apart()
				f.wrapped("qwen3_5_moe", "language_model.model.", "")
			}),
		},
	}
	for model, list := range forms {
		for _, exact := range []bool{true, false} {
			if testing.Short() && !exact {
				continue
			}
			want := logitsOf(t, goldenForm(t, model).open(t), exact)
			for _, name := range slices.Sorted(maps.Keys(list)) {
				if !exact && strings.Contains(name, "f32") {
					continue // only bf16 weights meet activations in bf16
				}
				sameBits(t, fmt.Sprintf("%s, %s, exact %v", model, name, exact), logitsOf(t, list[name](goldenForm(t, model)), exact), want)
			}
		}
	}
}

// TestTiledValueHeads: value heads in the order of GGUF files give what they give in the
// other, but for the order in which an output's terms are added; taken for the other
// order they give something else.
func TestTiledValueHeads(t *testing.T) {
	for model, architecture := range map[string]string{"qwen3-5-text-tiny": "qwen35", "qwen3-5-drafts": "qwen35", "qwen3-5-moe-tiny": "qwen35moe"} {
		want := logitsOf(t, goldenForm(t, model).open(t), true)
		f := goldenForm(t, model)
		f.tiled()
		f.apart()
		if architecture == "qwen35moe" {
			f.stacked(stackExperts)
		}
		src := f.gguf(t, architecture)
		if e := distance(logitsOf(t, src, true), want); e > 2e-6 {
			t.Errorf("%s: a relative difference of %.2g", model, e)
		}
		if tensors, drafts := len(src.Names()), src.Config().MTPLayers; tensors != len(f.tensors) || drafts != 1 && model != "qwen3-5-text-tiny" {
			t.Errorf("%s: %d tensors of %d, %d layers for drafts", model, tensors, len(f.tensors), drafts)
		}
		f = goldenForm(t, model)
		f.tiled()
		if e := distance(logitsOf(t, f.open(t), true), want); e < 0.1 {
			t.Errorf("%s: heads in another order make a relative difference of %.2g only", model, e)
		}
	}
}

// TestQuantizedRouters: MLX's folders have routers and the shared expert's weight in 8 bits;
// products with them are in f32 all the same.
func TestQuantizedRouters(t *testing.T) {
	packed, widened := goldenForm(t, "qwen3-next-tiny"), goldenForm(t, "qwen3-next-tiny")
	format := map[string]any{"bits": 8, "group_size": 64}
	entry := map[string]any{"bits": 4, "group_size": 64}
	for _, suffix := range []string{"mlp.gate.weight", "mlp.shared_expert_gate.weight"} {
		packed.each(suffix, func(name string) {
			r := packed.tensors[name]
			w, err := r.Weight()
			if err != nil {
				t.Fatal(err)
			}
			module, out, in := strings.TrimSuffix(name, ".weight"), r.Shape[0], r.Shape[1]
			data, scales, biases := make([]byte, out*in), make([]byte, out*in/64*2), make([]byte, out*in/64*2)
			whole := make([]float32, out*in)
			for o := range out {
				row := whole[o*in : (o+1)*in]
				quant.Row(row, &w, o)
				g := in / 64 * 2
				quant.Affine(data[o*in:(o+1)*in], scales[o*g:(o+1)*g], biases[o*g:(o+1)*g], row, 8, 64)
				quant.AffineToF32(row, data[o*in:(o+1)*in], scales[o*g:(o+1)*g], biases[o*g:(o+1)*g], 8, 64)
			}
			packed.tensors[name] = checkpoint.RawTensor{Name: name, DType: "U32", Shape: []int{out, in / 4}, Data: data}
			packed.tensors[module+".scales"] = checkpoint.RawTensor{Name: module + ".scales", DType: "BF16", Shape: []int{out, in / 64}, Data: scales}
			packed.tensors[module+".biases"] = checkpoint.RawTensor{Name: module + ".biases", DType: "BF16", Shape: []int{out, in / 64}, Data: biases}
			entry[module] = format
			floats := make([]byte, 4*out*in)
			quant.Blocks(floats, backend.F32, whole)
			widened.tensors[name] = checkpoint.RawTensor{Name: name, DType: "F32", Shape: []int{out, in}, Data: floats}
		})
	}
	packed.config["quantization"] = entry
	for _, exact := range []bool{true, false} {
		if e := distance(logitsOf(t, packed.open(t), exact), logitsOf(t, widened.open(t), exact)); e > 1e-6 {
			t.Errorf("exact %v: a relative difference of %.2g", exact, e)
		}
	}
}

// distance is |a − b| / |b|.
func distance(a, b []float32) float64 {
	var difference, norm float64
	for i, x := range b {
		difference += float64(x-a[i]) * float64(x-a[i])
		norm += float64(x) * float64(x)
	}
	return math.Sqrt(difference / norm)
}
