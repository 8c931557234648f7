package model_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"windrow/checkpoint"
	"windrow/model"
)

// TestUnusedTensors: a model is refused some of whose layers' tensors nothing reads; what is
// known to be harmless is passed over, and the rest is listed.
func TestUnusedTensors(t *testing.T) {
	const attention = "model.layers.3.self_attn."
	b := exactCPU(t)
	add := func(dtype string, value byte, names ...string) func(*form) {
		return func(f *form) {
			for _, name := range names {
				r := checkpoint.RawTensor{Name: name, DType: dtype, Shape: []int{4}, Data: make([]byte, 8)}
				r.Data[7] = value // of the last element's upper half
				f.tensors[name] = r
			}
		}
	}
	field := func(name string, value any, without ...string) func(*form) {
		return func(f *form) {
			f.config[name] = value
			for _, name := range without {
				delete(f.config, name)
			}
		}
	}
	next, dense, moe := "qwen3-next-tiny", "qwen3-untied", "qwen3-moe-tiny"
	for _, tc := range []struct {
		model, what string
		change      func(*form)
		want        string // of the error
		others      []string
	}{
		{next, "nothing", func(*form) {}, "", nil},
		{next, "fewer layers", func(f *form) {
			f.config["num_hidden_layers"], f.config["layer_types"] = 3, []any{"linear_attention", "full_attention", "linear_attention"}
			f.rename(attention+"q_proj.weight", "model.layers.1.self_attn.q_proj.weight")
		}, "tensor model.layers.1.self_attn.k_proj.weight is missing", nil},
		{dense, "fewer layers of one kind", field("num_hidden_layers", 2, "layer_types"), `11 tensors are no part of the model that the config describes, the first is "model.layers.2.input_layernorm.weight"`, nil},
		{next, "a layer more", add("BF16", 0, "model.layers.9.input_layernorm.weight", "model.layers.9.mlp.gate.weight"), `2 tensors are no part of the model that the config describes, the first is "model.layers.9.input_layernorm.weight"`, nil},
		{next, "a shared expert of no size", field("shared_expert_intermediate_size", 0), `16 tensors are no part of the model that the config describes, the first is "model.layers.0.mlp.shared_expert.down_proj.weight"`, nil},
		{next, "a bias", add("BF16", 0x3f, attention+"q_proj.bias"), `tensor "` + attention + `q_proj.bias" is no part of the model that the config describes`, nil},
		{moe, "a correction of the router", add("BF16", 0x3f, "model.layers.1.mlp.gate.e_score_correction_bias"), `tensor "model.layers.1.mlp.gate.e_score_correction_bias" is no part`, nil},
		{dense, "adapters", add("BF16", 0, "model.layers.1.self_attn.q_proj.lora_A.weight"), `tensor "model.layers.1.self_attn.q_proj.lora_A.weight" is no part`, nil},
		{next, "a bias of zeros", add("F16", 0x80, attention+"q_proj.bias", attention+"o_proj.bias"), "", nil},
		{next, "tables", add("F16", 0x3f, attention+"rotary_emb.inv_freq", "model.rotary_emb.inv_freq", "rotary_emb.cos_cached", "model.layers.0.attn.masked_bias"), "", nil},
		{next, "scales of stored keys", add("F16", 0x3f, attention+"k_scale", attention+"v_proj.v_scale", attention+"attn.kv_scale"), "", nil},
		{next, "images and sound", add("F16", 0x3f, "model.visual.blocks.0.attn.proj.weight", "vision_tower.x.weight", "audio_tower.layers.0.weight", "multi_modal_projector.weight"), "", nil},
		{moe, "a head for drafts of a model that has none", add("BF16", 0x3f, "mtp.fc.weight", "mtp.layers.0.self_attn.q_proj.weight"), "", nil},
		{next, "what is of no layer", add("BF16", 0x3f, "score.weight", "lm_head.bias"), "", []string{"lm_head.bias", "score.weight"}},
		{next, "scales that no form has", add("BF16", 0x3f, attention+"q_proj.input_scale", attention+"q_proj.weight_scale_inv"), "", []string{attention + "q_proj.input_scale", attention + "q_proj.weight_scale_inv"}},
		{"qwen3-5-drafts", "a head's own embedding", add("BF16", 0x3f, "mtp.embed_tokens.weight"), "", []string{"mtp.embed_tokens.weight"}},
	} {
		f := goldenForm(t, tc.model)
		tc.change(f)
		src, err := f.tryOpen(t)
		if err != nil {
			t.Fatalf("%s: %v", tc.what, err)
		}
		m, err := model.Load(b, src)
		if err == nil {
			m.Close()
		}
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tc.want) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: %v, want %q", tc.what, err, tc.want)
		}
		if _, others := model.Unused(src); !slices.Equal(others, tc.others) {
			t.Errorf("%s: %q is not used, want %q", tc.what, others, tc.others)
		}
	}
}

// TestUnusedOfForms: of every form of the golden models each tensor is used.
func TestUnusedOfForms(t *testing.T) {
	for name, architecture := range map[string]string{"qwen3-next-tiny": "qwen3next", "qwen3-5-text-tiny": "qwen35", "qwen3-5-drafts": "qwen35", "qwen3-5-moe-tiny": "qwen35moe"} {
		for what, src := range map[string]func(f *form) checkpoint.Source{
			"as it is": func(f *form) checkpoint.Source { return f.open(t) },
			"mlx":      func(f *form) checkpoint.Source { f.asMLXWithDrafts(t); return f.open(t) },
			"gguf": func(f *form) checkpoint.Source {
				if architecture == "qwen3next" {
					f.flatDelta()
				}
				f.apart()
				f.stacked(stackExperts)
				return f.gguf(t, architecture)
			},
		} {
			layers, others := model.Unused(src(goldenForm(t, name)))
			if layers != nil || others != nil {
				t.Errorf("%s, %s: %q and %q are not used", name, what, layers, others)
			}
		}
	}
	// A GGUF file of a layer that the metadata do not count.
	f := goldenForm(t, "qwen3-next-tiny")
	f.flatDelta()
	f.stacked(stackExperts)
	for _, name := range slices.Sorted(maps.Keys(f.tensors)) {
		if rest, ok := strings.CutPrefix(name, "model.layers.3."); ok {
			r := f.tensors[name]
			r.Name = "model.layers.9." + rest
			f.tensors[r.Name] = r
		}
	}
	_, err := model.Load(exactCPU(t), f.gguf(t, "qwen3next"))
	if want := `tensors are no part of the model that the config describes, the first is "model.layers.9.`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a layer too many: %v", err)
	}
}

// TestUnusedOfPublished: what quantised checkpoints have beside weights is passed over.
func TestUnusedOfPublished(t *testing.T) {
	const at = "model.layers.0.self_attn.q_proj."
	for _, f := range publishedFolders {
		c := openPublished(t, f.name)
		if layers, others := model.Unused(c); layers != nil || others != nil {
			t.Errorf("%s: %q and %q are not used", f.name, layers, others)
		}
		more := edited{c, map[string][]int{
			at + "input_scale": {1}, at + "input_zero_point": {1}, at + "output_scale": {1}, at + "activation_scale": {1}, at + "weight_scale_2": {1}, at + "weight_global_scale": {1},
			at + "input_global_scale": {1}, at + "g_idx": {64}, "model.layers.0.self_attn.k_proj.k_scale": {1}, "model.layers.1.self_attn.v_scale": {1}, "model.layers.0.mlp.gate.bias": {8},
		}}
		if layers, others := model.Unused(more); layers != nil || others != nil {
			t.Errorf("%s, and more: %q and %q are not used", f.name, layers, others)
		}
	}
}
