package architecture

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"windrow/backend"
)

// bySuffix is the rule of splits that went by names alone: what dense models
// are cut by.
func bySuffix(name string) backend.Split {
	if name == "lm_head.weight" {
		return backend.SplitOutputs
	}
	module, _ := strings.CutSuffix(name, ".weight")
	bias := false
	if module == name {
		module, bias = strings.CutSuffix(name, ".bias")
	}
	switch module[strings.LastIndexByte(module, '.')+1:] {
	case "q_proj", "k_proj", "v_proj", "gate_proj", "up_proj":
		return backend.SplitOutputs
	case "o_proj", "down_proj":
		if !bias {
			return backend.SplitInputs
		}
	}
	return backend.SplitNone
}

// denseOnes are the architectures without experts and DeltaNets.
func denseOnes() []*Architecture {
	return slices.DeleteFunc(All(), func(a *Architecture) bool { return a.Mixture() || a.Hybrid() })
}

// Every tensor of a dense model is cut, quantised and read as the rules by name
// had it.
func TestDenseRules(t *testing.T) {
	for _, a := range denseOnes() {
		for _, tied := range []bool{false, true} {
			c := small(a.Name)
			c.TieEmbeddings = tied
			list := a.Tensors(c)
			if want := 3 + 18*c.Layers; len(list) != want {
				t.Errorf("%s: %d tensors, want %d", a.Name, len(list), want)
			}
			for _, p := range list {
				if want := bySuffix(p.Name); p.Split != want {
					t.Errorf("%s: %s is split %d, want %d", a.Name, p.Name, p.Split, want)
				}
				// Matrices named .weight were quantised; the selective policy and
				// random weights left out two of them.
				matrix := strings.HasSuffix(p.Name, ".weight") && len(p.Shape) == 2
				kept := p.Name == "lm_head.weight" || p.Name == "model.embed_tokens.weight"
				if p.Class.Quantizable() != matrix || (p.Class == ClassProjection) != (matrix && !kept) || (p.Class == ClassProjection) != strings.HasSuffix(p.Name, "proj.weight") {
					t.Errorf("%s: %s of shape %v is of class %d", a.Name, p.Name, p.Shape, p.Class)
				}
				if (p.Class == ClassNorm) != strings.HasSuffix(p.Name, "norm.weight") || (p.Class == ClassBias) != strings.HasSuffix(p.Name, ".bias") {
					t.Errorf("%s: %s is of class %d", a.Name, p.Name, p.Class)
				}
				unread := p.Name == "model.embed_tokens.weight" && !tied || p.Name == "lm_head.weight" && tied
				if p.ReadWhole(c) == unread {
					t.Errorf("%s, tied %v: %s is read whole: %v", a.Name, tied, p.Name, p.ReadWhole(c))
				}
			}
		}
	}
}

// The tensors of random weights, with their shapes and in their order, are those
// that were listed by hand: seeds gave bytes in this order.
func TestDenseOrder(t *testing.T) {
	for _, a := range denseOnes() {
		for _, tied := range []bool{false, true} {
			c := small(a.Name)
			c.TieEmbeddings = tied
			var got []string
			for _, p := range a.Tensors(c) {
				if p.Need.Invented(c) {
					got = append(got, fmt.Sprint(p.Name, p.Shape))
				}
			}
			if want := listedByHand(c); !slices.Equal(got, want) {
				t.Errorf("%s, tied %v:\n%s\nwant\n%s", a.Name, tied, strings.Join(got, " "), strings.Join(want, " "))
			}
		}
	}
}

func listedByHand(c *Config) (list []string) {
	add := func(name string, shape ...int) { list = append(list, fmt.Sprint(name, shape)) }
	queries, keys := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	add("model.embed_tokens.weight", c.VocabSize, c.HiddenSize)
	for i := range c.Layers {
		layer := fmt.Sprintf("model.layers.%d.", i)
		add(layer+"input_layernorm.weight", c.HiddenSize)
		add(layer+"self_attn.q_proj.weight", queries, c.HiddenSize)
		add(layer+"self_attn.k_proj.weight", keys, c.HiddenSize)
		add(layer+"self_attn.v_proj.weight", keys, c.HiddenSize)
		if c.Architecture == "qwen2" {
			add(layer+"self_attn.q_proj.bias", queries)
			add(layer+"self_attn.k_proj.bias", keys)
			add(layer+"self_attn.v_proj.bias", keys)
		} else {
			add(layer+"self_attn.q_norm.weight", c.HeadDim)
			add(layer+"self_attn.k_norm.weight", c.HeadDim)
		}
		add(layer+"self_attn.o_proj.weight", c.HiddenSize, queries)
		add(layer+"post_attention_layernorm.weight", c.HiddenSize)
		add(layer+"mlp.gate_proj.weight", c.IntermediateSize, c.HiddenSize)
		add(layer+"mlp.up_proj.weight", c.IntermediateSize, c.HiddenSize)
		add(layer+"mlp.down_proj.weight", c.HiddenSize, c.IntermediateSize)
	}
	add("model.norm.weight", c.HiddenSize)
	if !c.TieEmbeddings {
		add("lm_head.weight", c.VocabSize, c.HiddenSize)
	}
	return list
}

// Names in GGUF files are those of the maps that stood beside their reader, and
// lead back.
func TestDenseGGUFNames(t *testing.T) {
	whole := map[string]string{"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}
	block := map[string]string{
		"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
		"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
		"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
		"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
	}
	pattern := regexp.MustCompile(`^blk\.(0|[1-9][0-9]{0,3})\.([a-z_]+)\.(weight|bias)$`)
	translate := func(name string) (string, bool) {
		if hf, ok := whole[name]; ok {
			return hf, true
		}
		parts := pattern.FindStringSubmatch(name)
		if parts == nil {
			return "", false
		}
		module, ok := block[parts[2]]
		return "model.layers." + parts[1] + "." + module + "." + parts[3], ok
	}
	for _, a := range denseOnes() {
		c := small(a.Name)
		for _, p := range a.Tensors(c) {
			row, name, ok := a.FromGGUF(c, p.GGUF)
			if !ok || name != p.Name || row != p.Parameter {
				t.Errorf("%s: %s is %s in GGUF files, which is %s, %v", a.Name, p.Name, p.GGUF, name, ok)
			}
			if want, ok := translate(p.GGUF); !ok || want != p.Name {
				t.Errorf("%s: %s is %s in GGUF files, which was %s, %v", a.Name, p.Name, p.GGUF, want, ok)
			}
		}
		modules := []string{"attn_qkv", "ffn_gate_exps", "", "attn_q.x"}
		for module := range block {
			modules = append(modules, module)
		}
		for _, number := range []string{"0", "2", "3", "9999", "10000", "00", "01", "-1", "+1", "", "x", "1x"} {
			for _, module := range modules {
				for _, ending := range []string{".weight", ".bias", "", ".weights"} {
					name := "blk." + number + "." + module + ending
					_, got, ok := a.FromGGUF(c, name)
					want, known := translate(name)
					if strings.HasSuffix(want, "norm.bias") { // was taken, and then ignored
						want, known = "", false
					}
					if ok != known || ok && got != want {
						t.Errorf("%s: gguf %s is %q, %v, want %q, %v", a.Name, name, got, ok, want, known)
					}
				}
			}
		}
		for _, name := range []string{"", "token_embd", "rope_freqs.weight", "model.norm.weight", "lm_head.weight", "blk", "blk.", "blk.0", "blk.0."} {
			if _, got, ok := a.FromGGUF(c, name); ok {
				t.Errorf("%s: gguf %q is %s", a.Name, name, got)
			}
		}
	}
}

// A tensor is found by its name and by no other.
func TestFind(t *testing.T) {
	for _, a := range All() {
		c := small(a.Name)
		for _, want := range a.Tensors(c) {
			got, ok := a.Find(c, want.Name)
			if !ok || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: found %v, %v, want %v", a.Name, got, ok, want)
			}
			if list := a.Role(c, want.Layer, want.Role, want.Class); len(list) != 1 || list[0].Name != want.Name {
				t.Errorf("%s: the %s of layer %d is %v, want %s", a.Name, want.Role, want.Layer, list, want.Name)
			}
		}
		for _, name := range []string{
			"", "model", "model.layers", "model.layers.", "model.layers.0", "model.layers.0.", "model.layers.x.mlp.up_proj.weight",
			"mlp.up_proj.weight", "layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj", "model.layers.0.mlp.up_proj.scales",
			"model.layers.3.mlp.up_proj.weight", "model.layers.00.mlp.up_proj.weight", "model.layers.-1.mlp.up_proj.weight",
			"model.layers.0.mlp.experts.7.gate_proj.weight", "model.layers.0.mlp.experts.gate_up_proj", "model.layers.0.mlp.gate.weight",
			"model.layers.0.mlp.shared_expert.down_proj.weight", "mtp.layers.0.self_attn.o_proj.weight", "model.visual.blocks.0.attn.q_proj.weight",
			"model.layers.0.self_attn.rotary_emb.inv_freq", "lm_head.bias", "model.norm.bias", "model.layers.0.lm_head.weight", "model.layers.0.model.norm.weight",
		} {
			if p, ok := a.Find(c, name); ok {
				t.Errorf("%s: %q is %v", a.Name, name, p)
			}
		}
	}
}

func TestRegistry(t *testing.T) {
	const want = "want qwen3, qwen2, wedlm, qwen3_moe, qwen3_next, qwen3_5_text or qwen3_5_moe_text (text models; no images)"
	_, err := Lookup("llama")
	if err == nil || err.Error() != `unknown architecture "llama": `+want {
		t.Errorf("error %v", err)
	}
	if _, err := Lookup(""); err == nil {
		t.Error("no name is known")
	}
	for _, a := range All() {
		if got, err := Lookup(a.Name); err != nil || got != a || Of(small(a.Name)) != a {
			t.Errorf("%s: %v, %v", a.Name, got, err)
		}
	}
	none := Of(small("llama"))
	if none.Name != "llama" || len(none.Tensors(small("llama"))) != 0 {
		t.Errorf("an unknown architecture has %v", none.Tensors(small("llama")))
	}
	if _, ok := none.Find(small("llama"), "model.norm.weight"); ok {
		t.Error("an unknown architecture knows a tensor")
	}
	if got := Names(" and ", func(a *Architecture) string { return a.GGUF }); got != "qwen3, qwen2, qwen3moe, qwen3next, qwen35 and qwen35moe" {
		t.Errorf("GGUF names %s", got)
	}
}
