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
	"windrow/conformance/backendtest"
	"windrow/model"
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

// TestDraftHeadForms: the head for drafts has a reference's logits in each form that files
// have it in.
func TestDraftHeadForms(t *testing.T) {
	wrapped := func(modelType, head string) func(f *form) checkpoint.Source {
		return func(f *form) checkpoint.Source {
			f.asMLXWithDrafts(t)
			f.wrapped(modelType, "language_model.model.", head)
			return f.open(t)
		}
	}
	gguf := func(architecture string, edit ...func(f *form)) func(f *form) checkpoint.Source {
		return func(f *form) checkpoint.Source {
			f.tiled()
			f.apart()
			for _, e := range edit {
				e(f)
			}
			return f.gguf(t, architecture)
		}
	}
	mlx := func(f *form) checkpoint.Source {
		f.asMLXWithDrafts(t)
		return f.open(t)
	}
	forms := map[string]map[string]func(f *form) checkpoint.Source{
		"qwen3-5-drafts": {
			"gguf": gguf("qwen35"), "gguf, all in f32": gguf("qwen35", func(f *form) { f.inF32(t) }),
			"mlx": mlx, "mlx, wrapped": wrapped("qwen3_5", "language_model.lm_head.weight"),
		},
		"qwen3-5-moe-tiny": {
			"apart": func(f *form) checkpoint.Source {
				f.apart()
				return f.open(t)
			},
			"gguf": gguf("qwen35moe", func(f *form) { f.stacked(stackExperts) }),
			"gguf, gates and ups together": gguf("qwen35moe", func(f *form) {
				f.stacked(map[string][]string{"experts.gate_up_proj": {"gate_proj", "up_proj"}, "switch_mlp.down_proj.weight": {"down_proj"}})
			}),
			"mlx": mlx, "mlx, wrapped": wrapped("qwen3_5_moe", ""),
		},
	}
	b := exactCPU(t)
	for name, list := range forms {
		for _, what := range slices.Sorted(maps.Keys(list)) {
			src := list[what](goldenForm(t, name))
			if n := src.Config().MTPLayers; n != 1 {
				t.Errorf("%s, %s: %d layers for drafts", name, what, n)
				continue
			}
			relative, equal, rows := backendtest.HeadLogits(t, goldenFolder, src, b, name, 1000, nil, model.DraftHead(0))
			if !(relative <= 5e-6) || equal != rows {
				t.Errorf("%s, %s: relative norm %.3g, argmax equal in %d of %d rows", name, what, relative, equal, rows)
			}
		}
	}
}

// TestSparseStep: each second layer has experts where a config says decoder_sparse_step 2:
// the bits of one that lists the dense layers.
func TestSparseStep(t *testing.T) {
	logits := func(step int, dense ...int) []float32 {
		f := goldenForm(t, "qwen3-next-long") // whose layer 2 is dense
		for _, part := range []string{"gate_proj.weight", "up_proj.weight", "down_proj.weight"} {
			r := f.tensors["model.layers.2.mlp."+part]
			r.Name = "model.layers.0.mlp." + part
			f.tensors[r.Name] = r
		}
		sparse := step == 1 && !slices.Contains(dense, 0)
		maps.DeleteFunc(f.tensors, func(name string, _ checkpoint.RawTensor) bool {
			part, ok := strings.CutPrefix(name, "model.layers.0.mlp.")
			return ok && sparse == (part == "gate_proj.weight" || part == "up_proj.weight" || part == "down_proj.weight")
		})
		f.config["decoder_sparse_step"], f.config["mlp_only_layers"] = step, dense
		return logitsOf(t, f.open(t), true)
	}
	want := logits(1, 0, 2)
	sameBits(t, "every second layer", logits(2), want)
	sameBits(t, "every second layer, and one that is dense all the same", logits(2, 0), want)
	if e := distance(logits(1, 2), want); e < 1e-3 {
		t.Errorf("with experts in the first layer, too, a relative difference of %.2g only", e)
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
