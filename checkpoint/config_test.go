package checkpoint

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/internal/testhelp"
	"windrow/rope"
)

// configWith changes fields of smallConfig: nil removes one.
func configWith(change map[string]any) []byte {
	var c map[string]any
	if err := json.Unmarshal([]byte(smallConfig), &c); err != nil {
		panic(err)
	}
	for name, value := range change {
		if value == nil {
			delete(c, name)
		} else {
			c[name] = value
		}
	}
	data, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	return data
}

type set = map[string]any

func TestParseConfig(t *testing.T) {
	small := Config{Architecture: "qwen3", HiddenSize: 8, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 4, IntermediateSize: 16, VocabSize: 32,
		RMSNormEps: 1e-6, MaxPositions: 32768, Rope: rope.Config{Type: "default", HeadDim: 4, Theta: 10000}, MaskTokenID: -1}
	for _, tc := range []struct {
		name   string
		change set
		want   func(*Config)
	}{
		{"as it is", nil, func(*Config) {}},
		{"qwen2 by its class", set{"model_type": nil, "architectures": []string{"Qwen2ForCausalLM"}}, func(c *Config) { c.Architecture = "qwen2" }},
		{"no class", set{"architectures": nil}, func(*Config) {}},
		{"wedlm by its class", set{"architectures": []string{"WeDLMForCausalLM"}}, func(c *Config) { c.Architecture = "wedlm" }},
		{"wedlm on Qwen3's vocabulary", set{"model_type": "wedlm", "architectures": nil, "vocab_size": 151936, "mask_token_id": json.RawMessage("null")},
			func(c *Config) { c.Architecture, c.VocabSize, c.MaskTokenID = "wedlm", 151936, 151665 }},
		{"wedlm on Qwen2.5's vocabulary", set{"model_type": "wedlm", "architectures": nil, "vocab_size": 152064},
			func(c *Config) { c.Architecture, c.VocabSize, c.MaskTokenID = "wedlm", 152064, 151665 }},
		{"qwen3 has no mask", set{"vocab_size": 151936}, func(c *Config) { c.VocabSize = 151936 }},
		{"a mask of its own", set{"mask_token_id": 31}, func(c *Config) { c.MaskTokenID = 31 }},
		{"head_dim from hidden", set{"head_dim": nil}, func(*Config) {}},
		{"no GQA", set{"num_key_value_heads": nil}, func(c *Config) { c.KVHeads = 2 }},
		{"one stop id", set{"eos_token_id": 3}, func(c *Config) { c.EOSTokenIDs = []int32{3} }},
		{"stop ids", set{"eos_token_id": []int{3, 31}}, func(c *Config) { c.EOSTokenIDs = []int32{3, 31} }},
		{"numbers written otherwise", set{"hidden_size": json.RawMessage("8.0"), "vocab_size": json.RawMessage("3.2e1"), "rope_theta": json.RawMessage("1e6")},
			func(c *Config) { c.Rope.Theta = 1e6 }},
		{"dtype", set{"torch_dtype": "bfloat16", "tie_word_embeddings": true}, func(c *Config) { c.DType, c.TieEmbeddings = "bfloat16", true }},
		{"the newer dtype", set{"torch_dtype": "bfloat16", "dtype": "float16"}, func(c *Config) { c.DType = "float16" }},
		{"rope_parameters", set{"rope_theta": 5, "rope_parameters": set{"rope_type": "default", "rope_theta": 1e6}}, func(c *Config) { c.Rope.Theta = 1e6 }},
		{"rope_scaling of null", set{"rope_theta": 1e6, "rope_scaling": json.RawMessage("null")}, func(c *Config) { c.Rope.Theta = 1e6 }},
		{"linear", set{"rope_scaling": set{"type": "linear", "factor": 2}}, func(c *Config) { c.Rope.Type, c.Rope.Factor = "linear", 2 }},
		{"yarn of transformers 5", set{"max_position_embeddings": 256, "rope_parameters": set{"rope_type": "yarn", "factor": 4, "rope_theta": 1e4, "original_max_position_embeddings": 64}},
			func(c *Config) {
				c.MaxPositions = 256
				c.Rope.Type, c.Rope.Factor, c.Rope.OriginalMaxPositions = "yarn", 4, 64
			}},
		{"yarn as Qwen3 recommends", set{"rope_theta": 1e6, "max_position_embeddings": 40960, "rope_scaling": set{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768,
			"beta_fast": 16, "beta_slow": 2, "attention_factor": 1.5, "mscale": 0.5, "mscale_all_dim": 0.25, "truncate": false}},
			func(c *Config) {
				c.MaxPositions = 131072
				c.Rope = rope.Config{Type: "yarn", HeadDim: 4, Theta: 1e6, Factor: 4, OriginalMaxPositions: 32768,
					BetaFast: 16, BetaSlow: 2, AttentionFactor: 1.5, Mscale: 0.5, MscaleAllDim: 0.25, NoTruncate: true}
			}},
		{"yarn without a factor", set{"max_position_embeddings": 256, "rope_scaling": set{"type": "yarn", "original_max_position_embeddings": 64}},
			func(c *Config) {
				c.MaxPositions = 256
				c.Rope.Type, c.Rope.Factor, c.Rope.OriginalMaxPositions = "yarn", 4, 64
			}},
	} {
		got, err := ParseConfig(configWith(tc.change))
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		want := small
		tc.want(&want)
		if !reflect.DeepEqual(*got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", tc.name, *got, want)
		}
	}
}

var badConfigs = []struct {
	name   string
	change set
	want   string
}{
	{"an image model", set{"model_type": "qwen3_vl_moe", "architectures": []string{"Qwen3VLMoeForConditionalGeneration"}}, `model_type: unknown architecture "qwen3_vl_moe": want qwen3, qwen2, wedlm, qwen3_moe, qwen3_next`},
	{"experts of no size", mixtureWith(set{"moe_intermediate_size": 0}), "moe_intermediate_size: found 0"},
	{"experts fewer than none", mixtureWith(set{"num_experts": -1}), "num_experts: found -1"},
	{"no experts, nor a dense layer's size", mixtureWith(set{"num_experts": 0, "intermediate_size": nil}), "intermediate_size: missing, and layer 0 has no experts"},
	{"two counts, one of them none", mixtureWith(set{"num_experts": 0, "num_local_experts": 4}), "num_local_experts: found 4, want as num_experts 0"},
	{"more experts for a token than there are", mixtureWith(set{"num_experts_per_tok": 9}), "num_experts_per_tok: found 9, want at most num_experts 8"},
	{"no expert for a token", mixtureWith(set{"num_experts_per_tok": 0}), "num_experts_per_tok: found 0"},
	{"two counts of experts", mixtureWith(set{"num_local_experts": 4}), "num_local_experts: found 4, want as num_experts 8"},
	{"a shared expert", mixtureWith(set{"shared_expert_intermediate_size": 16}), "shared_expert_intermediate_size: found 16, want none"},
	{"a dense layer that is none", mixtureWith(set{"mlp_only_layers": []int{99}}), "mlp_only_layers: found 99"},
	{"dense layers of no size", mixtureWith(set{"intermediate_size": nil, "decoder_sparse_step": 2}), "intermediate_size: missing, and layer 0 has no experts"},
	{"no step", mixtureWith(set{"decoder_sparse_step": 0}), "decoder_sparse_step: found 0"},
	{"two families", set{"model_type": "qwen3_next"}, `want the one of model_type "qwen3_next"`},
	{"a model to come, its text", set{"model_type": "qwen4_exp_text", "architectures": nil}, "model_type: qwen4_exp_text has hyper-connections"},
	{"a model to come", set{"model_type": "qwen4_exp", "architectures": nil}, "model_type: qwen4_exp has hyper-connections and n-gram embeddings, which are not supported: want qwen3"},
	{"llama by class", set{"model_type": nil, "architectures": []string{"LlamaForCausalLM"}}, `architectures: unknown architecture "LlamaForCausalLM"`},
	{"no name", set{"model_type": nil, "architectures": nil}, "model_type: missing"},
	{"a classifier", set{"architectures": []string{"Qwen3ForSequenceClassification"}}, "want Qwen3ForCausalLM"},
	{"two names", set{"architectures": []string{"Qwen2ForCausalLM"}}, `want the one of model_type "qwen3"`},
	{"classes as text", set{"architectures": "Qwen3ForCausalLM"}, "architectures: found"},
	{"no layers", set{"num_hidden_layers": 0}, "num_hidden_layers: found 0, want a whole number from 1 to 1024"},
	{"2³¹ layers", set{"num_hidden_layers": 1 << 31}, "num_hidden_layers: found 2147483648"},
	{"no heads", set{"num_attention_heads": 0}, "num_attention_heads: found 0"},
	{"negative heads", set{"num_attention_heads": -4}, "num_attention_heads: found -4"},
	{"no kv heads", set{"num_key_value_heads": 0}, "num_key_value_heads: found 0"},
	{"kv heads that do not divide", set{"num_attention_heads": 6, "num_key_value_heads": 4}, "num_key_value_heads: found 4, want a divisor of num_attention_heads 6"},
	{"more kv heads", set{"num_key_value_heads": 4}, "want a divisor"},
	{"odd head_dim", set{"head_dim": 3}, "head_dim: found 3, want an even number"},
	{"odd head_dim from hidden", set{"head_dim": nil, "hidden_size": 6}, "head_dim: found 3"},
	{"no head_dim", set{"head_dim": nil, "hidden_size": 7}, "head_dim: missing, and hidden_size 7"},
	{"huge head_dim", set{"head_dim": 1 << 20}, "head_dim: found 1048576"},
	{"no vocabulary", set{"vocab_size": 0}, "vocab_size: found 0"},
	{"no hidden", set{"hidden_size": nil}, "hidden_size: missing"},
	{"a fraction", set{"hidden_size": 8.5}, "hidden_size: found 8.5"},
	{"text", set{"hidden_size": "8"}, `hidden_size: found "8"`},
	{"1e400", set{"intermediate_size": json.RawMessage("1e400")}, "intermediate_size: found 1e400"},
	{"eps", set{"rms_norm_eps": 0}, "rms_norm_eps: found 0"},
	{"positions", set{"max_position_embeddings": 1e12}, "max_position_embeddings: found"},
	{"an activation", set{"hidden_act": "gelu"}, `hidden_act: found "gelu", want silu`},
	{"sliding window", set{"use_sliding_window": true}, "use_sliding_window: found true"},
	{"layer types", set{"layer_types": []string{"full_attention", "sliding_attention"}}, `layer_types: found "sliding_attention"`},
	{"stop id past the vocabulary", set{"eos_token_id": 32}, "eos_token_id: found 32, want token ids from 0 to 31"},
	{"a null stop id", set{"eos_token_id": []any{1, nil}}, "eos_token_id: found [1,null]"},
	{"a stop text", set{"eos_token_id": "</s>"}, "eos_token_id"},
	{"mask past the vocabulary", set{"mask_token_id": 32}, "mask_token_id: found 32"},
	{"rope type", set{"rope_scaling": set{"rope_type": "llama3", "factor": 8}}, `rope_scaling: rope_type "llama3"`},
	{"mrope", set{"rope_scaling": set{"type": "default", "mrope_section": []int{1, 1}}}, "image position"},
	{"partial rotation", set{"rope_parameters": set{"partial_rotary_factor": 0.25}}, "partial_rotary_factor: found 0.25"},
	{"rotation by layer type", set{"rope_parameters": set{"full_attention": set{"rope_theta": 1e6}}}, "rotation for each layer type"},
	{"rope as a list", set{"rope_parameters": []int{1}}, "rope_parameters: found [1], want an object"},
	{"theta", set{"rope_theta": 0}, "rope_theta 0"},
	{"theta as text", set{"rope_scaling": set{"rope_theta": "1e6"}}, `rope_scaling: rope_theta: found "1e6", want a number`},
	{"yarn factor", set{"rope_scaling": set{"type": "yarn", "factor": 0.5, "original_max_position_embeddings": 64}}, "rope factor 0.5"},
}

// mixtureWith is a change that makes a mixture of experts, and another one.
func mixtureWith(change set) set {
	s := set{"model_type": "qwen3_moe", "architectures": []string{"Qwen3MoeForCausalLM"}, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "norm_topk_prob": true}
	maps.Copy(s, change)
	return s
}

// TestParseConfigMixture: counts under either name, defaults, and which layers have
// experts.
func TestParseConfigMixture(t *testing.T) {
	c, err := ParseConfig(configWith(mixtureWith(set{"num_experts": nil, "num_local_experts": 8, "intermediate_size": nil, "shared_expert_intermediate_size": 0})))
	if err != nil || !reflect.DeepEqual(c.Experts, &Experts{Count: 8, PerToken: 2, InnerSize: 16, Renormalise: true, Step: 1}) || !c.Sparse(0) || c.IntermediateSize != 0 {
		t.Errorf("%+v of %+v, %v", c.Experts, c, err)
	}
	c, err = ParseConfig(configWith(mixtureWith(set{"num_experts": nil, "num_experts_per_tok": nil, "norm_topk_prob": nil, "num_hidden_layers": 6, "decoder_sparse_step": 2, "mlp_only_layers": []int{3}})))
	if err != nil || !reflect.DeepEqual(c.Experts, &Experts{Count: 128, PerToken: 8, InnerSize: 16, Step: 2, DenseLayers: []int{3}}) {
		t.Fatalf("%+v, %v", c.Experts, err)
	}
	for layer, want := range []bool{false, true, false, false, false, true} {
		if c.Sparse(layer) != want {
			t.Errorf("layer %d has experts: %v", layer, !want)
		}
	}
	for what, change := range map[string]set{"none": {"num_experts": 0}, "none, of a newer version": {"num_experts": nil, "num_local_experts": 0, "num_experts_per_tok": 0}} {
		c, err = ParseConfig(configWith(mixtureWith(change)))
		if err != nil || c.Experts != nil || c.Sparse(0) || c.IntermediateSize == 0 {
			t.Errorf("%s: %+v, %v", what, c, err)
		}
	}
}

func TestParseConfigRefuses(t *testing.T) {
	for _, tc := range badConfigs {
		_, err := ParseConfig(configWith(tc.change))
		testhelp.OneLine(t, tc.name, err, tc.want)
	}
	for _, tc := range []struct{ text, want string }{
		{"", "empty: want a JSON object"},
		{" []", "found [], want a JSON object"},
		{"null", "want a JSON object"},
		{"{", "not JSON"},
		{`{"a":` + strings.Repeat("[", 1<<16), "not JSON"},
		{`{"model_type": "` + strings.Repeat("x", 5000) + "\"}", "unknown architecture"},
	} {
		_, err := ParseConfig([]byte(tc.text))
		testhelp.OneLine(t, tc.text[:min(len(tc.text), 20)], err, tc.want)
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	}
}

func TestKVBytesPerToken(t *testing.T) {
	c := &Config{Layers: 36, KVHeads: 8, HeadDim: 128} // of qwen3-8b: 2 · 36 · 8 · 128 elements
	for kv, want := range map[backend.KVType]int64{backend.KVF32: 294912, backend.KVBF16: 147456, backend.KVInt8: 73728 + 4608} {
		if got := c.KVBytesPerToken(kv); got != want {
			t.Errorf("%s: %d bytes, want %d", kv, got, want)
		}
	}
}

// FuzzConfig: what is accepted has sizes that a forward can rely on.
func FuzzConfig(f *testing.F) {
	for _, tc := range badConfigs {
		f.Add(configWith(tc.change))
	}
	for _, tc := range badHybrids {
		f.Add(configWith(tc.change))
	}
	for _, architecture := range []string{"qwen3_next", "qwen3_5", "qwen3_5_moe"} {
		f.Add(configWith(hybridWith(architecture, nil)))
	}
	f.Add([]byte(smallConfig))
	f.Add([]byte(`{"architectures": ["Qwen2ForCausalLM"], "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig(data)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("an error of several lines: %q", err)
			}
			return
		}
		if d := c.Delta; d != nil && (len(d.Layers) != c.Layers || c.RecurrentLayers() < 1 || d.KeyHeads < 1 || d.ValueHeads%d.KeyHeads != 0 ||
			d.KeyDim < 1 || d.ValueDim < 1 || d.Conv < 2 || c.StateBytes() < 1 || d.KeyHead(d.ValueHeads-1) != d.KeyHeads-1) {
			t.Fatalf("accepted %+v", *d)
		}
		if c.Layers < 1 || c.Heads < 1 || c.KVHeads < 1 || c.Heads%c.KVHeads != 0 || c.HeadDim < 2 || c.HeadDim%2 != 0 ||
			c.HiddenSize < 1 || c.VocabSize < 1 || c.MaxPositions < 1 || c.MaxPositions > math.MaxInt32 ||
			!(c.RMSNormEps > 0) || int(c.MaskTokenID) >= c.VocabSize || c.Rope.HeadDim < 2 || c.Rope.HeadDim > c.HeadDim || c.Rope.HeadDim%2 != 0 || c.Delta == nil && c.Rope.HeadDim != c.HeadDim {
			t.Fatalf("accepted %+v", *c)
		}
		for layer := range c.Layers {
			if e := c.Experts; c.Sparse(layer) && (e.PerToken < 1 || e.PerToken > e.Count || e.InnerSize < 1 || e.SharedInnerSize < 0) {
				t.Fatalf("layer %d: accepted %+v", layer, *e)
			} else if !c.Sparse(layer) && c.IntermediateSize < 1 {
				t.Fatalf("layer %d: accepted a dense MLP of %d", layer, c.IntermediateSize)
			}
		}
		if _, err := rope.New(c.Rope); err != nil {
			t.Fatal(err)
		}
		for _, id := range c.EOSTokenIDs {
			if id < 0 || int(id) >= c.VocabSize {
				t.Fatalf("stop id %d of %d", id, c.VocabSize)
			}
		}
		if n := c.KVBytesPerToken(backend.KVF32); n <= 0 {
			t.Fatalf("%d KV bytes a token", n)
		}
	})
}

var badGenerations = []struct{ text, want string }{
	{`[1]`, "want a JSON object"},
	{`{"eos_token_id": -1}`, "eos_token_id: found -1"},
	{`{"eos_token_id": 4294967296}`, "eos_token_id: found 4294967296"},
	{`{"eos_token_id": [1, [2]]}`, "eos_token_id: found [1, [2]]"},
	{`{"max_new_tokens": 0}`, "max_new_tokens: found 0"},
	{`{"temperature": "hot"}`, `temperature: found "hot"`},
	{`{"temperature": -1}`, "temperature: found -1"},
	{`{"top_p": 1.5}`, "top_p: found 1.5"},
	{`{"top_k": 0.5}`, "top_k: found 0.5"},
	{`{"do_sample": 1}`, "do_sample: found 1"},
}

func TestParseGenerationConfig(t *testing.T) {
	g, err := ParseGenerationConfig([]byte(`{"bos_token_id": 151643, "do_sample": true, "eos_token_id": [151645, 151643], "pad_token_id": 151643,
		"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": null, "max_new_tokens": 200, "transformers_version": "4.51.0"}`))
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(g.EOSTokenIDs) != "[151645 151643]" || !*g.DoSample || *g.Temperature != 0.6 || *g.TopK != 20 || *g.TopP != 0.95 ||
		g.MinP != nil || g.RepetitionPenalty != nil || g.MaxNewTokens != 200 {
		t.Errorf("read %+v", g)
	}
	if g, err := ParseGenerationConfig([]byte(`{}`)); err != nil || !reflect.DeepEqual(*g, GenerationConfig{}) {
		t.Errorf("an empty one: %+v, %v", g, err)
	}
	for _, tc := range badGenerations {
		_, err := ParseGenerationConfig([]byte(tc.text))
		testhelp.OneLine(t, tc.text, err, tc.want)
	}
}

func FuzzGenerationConfig(f *testing.F) {
	for _, tc := range badGenerations {
		f.Add([]byte(tc.text))
	}
	f.Add([]byte(`{"eos_token_id": [1, 2], "temperature": 1e0, "top_k": 20}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := ParseGenerationConfig(data)
		if err != nil {
			return
		}
		if g.MaxNewTokens < 0 || g.TopP != nil && !(*g.TopP >= 0 && *g.TopP <= 1) || g.Temperature != nil && !(*g.Temperature >= 0) {
			t.Fatalf("accepted %+v", *g)
		}
	})
}
