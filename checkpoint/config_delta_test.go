package checkpoint

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"windrow/internal/testhelp"
	"windrow/rope"
)

// hybridWith is a change that makes a hybrid of four layers whose other sizes are left
// to the defaults, and another one.
func hybridWith(modelType string, change set) set {
	s := set{"model_type": modelType, "architectures": nil, "num_hidden_layers": 4, "head_dim": nil, "intermediate_size": 16}
	maps.Copy(s, change)
	return s
}

// wrapper is a config.json of a model that sees images, too.
func wrapper(modelType string, top, text set) []byte {
	var whole set
	if err := json.Unmarshal(configWith(hybridWith(modelType+"_text", text)), &whole); err != nil {
		panic(err)
	}
	whole["architectures"] = []string{"AnotherClass"} // which nobody reads there
	all := set{"model_type": modelType, "text_config": whole, "vision_config": set{"hidden_size": 7, "model_type": modelType}, "image_token_id": 5}
	maps.Copy(all, top)
	data, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return data
}

func TestParseConfigHybrid(t *testing.T) {
	small := func(architecture string, e *Experts) Config {
		return Config{Architecture: architecture, HiddenSize: 8, Layers: 4, Heads: 2, KVHeads: 1, HeadDim: 256, IntermediateSize: 16, VocabSize: 32,
			RMSNormEps: 1e-6, MaxPositions: 32768, Rope: rope.Config{Type: "default", HeadDim: 64, Theta: 10000}, MaskTokenID: -1, AttentionGate: true, Experts: e,
			Delta: &DeltaNet{KeyHeads: 16, ValueHeads: 32, KeyDim: 128, ValueDim: 128, Conv: 4, Layers: []bool{true, true, true, false}}}
	}
	next := &Experts{Count: 512, PerToken: 10, InnerSize: 512, Renormalise: true, SharedInnerSize: 512, Step: 1}
	moe := &Experts{Count: 256, PerToken: 8, InnerSize: 512, Renormalise: true, SharedInnerSize: 512, Step: 1}
	for _, tc := range []struct {
		name   string
		config []byte
		base   Config
		want   func(*Config)
	}{
		{"next", configWith(hybridWith("qwen3_next", nil)), small("qwen3_next", next), func(*Config) {}},
		{"3.5", configWith(hybridWith("qwen3_5_text", nil)), small("qwen3_5_text", nil), func(*Config) {}},
		{"3.5 by its class", configWith(hybridWith("qwen3_5_text", set{"model_type": nil, "architectures": []string{"Qwen3_5ForCausalLM"}})), small("qwen3_5_text", nil), func(*Config) {}},
		{"3.5 with experts", configWith(hybridWith("qwen3_5_moe_text", nil)), small("qwen3_5_moe_text", moe), func(*Config) {}},
		{"3.5, flat, by the name of what sees images", configWith(hybridWith("qwen3_5", set{"architectures": []string{"Qwen3_5ForConditionalGeneration"}})), small("qwen3_5_text", nil), func(*Config) {}},
		{"wrapped", wrapper("qwen3_5", nil, nil), small("qwen3_5_text", nil), func(*Config) {}},
		{"wrapped, with experts", wrapper("qwen3_5_moe", set{"architectures": []string{"Qwen3_5MoeForConditionalGeneration"}}, nil), small("qwen3_5_moe_text", moe), func(*Config) {}},
		{"wrapped, ends and dtype at the top", wrapper("qwen3_5", set{"eos_token_id": 3, "tie_word_embeddings": true, "dtype": "bfloat16"}, set{"eos_token_id": json.RawMessage("null")}),
			small("qwen3_5_text", nil), func(c *Config) { c.EOSTokenIDs, c.TieEmbeddings, c.DType = []int32{3}, true, "bfloat16" }},
		{"wrapped, ends in the text", wrapper("qwen3_5", set{"eos_token_id": 2}, set{"eos_token_id": 3}), small("qwen3_5_text", nil), func(c *Config) { c.EOSTokenIDs = []int32{3} }},
		{"sizes of their own", configWith(hybridWith("qwen3_next", set{"linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 16, "linear_value_head_dim": 24,
			"linear_conv_kernel_dim": 3, "head_dim": 64, "partial_rotary_factor": 0.5, "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40,
			"shared_expert_intermediate_size": 48, "norm_topk_prob": false, "decoder_sparse_step": 2, "mlp_only_layers": []int{3}})), small("qwen3_next", nil),
			func(c *Config) {
				c.Delta = &DeltaNet{KeyHeads: 2, ValueHeads: 6, KeyDim: 16, ValueDim: 24, Conv: 3, Layers: []bool{true, true, true, false}}
				c.Experts = &Experts{Count: 8, PerToken: 3, InnerSize: 40, SharedInnerSize: 48, Step: 2, DenseLayers: []int{3}}
				c.HeadDim, c.Rope.HeadDim = 64, 32
			}},
		{"no shared expert", configWith(hybridWith("qwen3_next", set{"shared_expert_intermediate_size": 0})), small("qwen3_next", next), func(c *Config) {
			e := *next
			e.SharedInnerSize = 0
			c.Experts = &e
		}},
		{"experts are renormalised whatever is said", configWith(hybridWith("qwen3_5_moe_text", set{"norm_topk_prob": false, "decoder_sparse_step": 2, "mlp_only_layers": []int{0}})), small("qwen3_5_moe_text", moe), func(*Config) {}},
		{"an interval", configWith(hybridWith("qwen3_next", set{"full_attention_interval": 2})), small("qwen3_next", next), func(c *Config) { c.Delta.Layers = []bool{true, false, true, false} }},
		{"a list before an interval", configWith(hybridWith("qwen3_next", set{"full_attention_interval": 2, "layer_types": []string{"full_attention", "linear_attention", "linear_attention", "full_attention"}})),
			small("qwen3_next", next), func(c *Config) { c.Delta.Layers = []bool{false, true, true, false} }},
		{"no gate", configWith(hybridWith("qwen3_5_text", set{"attn_output_gate": false, "output_gate_type": "swish", "mamba_ssm_dtype": "float32"})), small("qwen3_5_text", nil), func(c *Config) { c.AttentionGate = false }},
		{"sections", configWith(hybridWith("qwen3_5_text", set{"rope_parameters": set{"rope_theta": 1e7, "rope_type": "default", "partial_rotary_factor": 0.25, "mrope_section": []int{11, 11, 10}, "mrope_interleaved": true}})),
			small("qwen3_5_text", nil), func(c *Config) { c.Rope.Theta = 1e7 }},
		{"a head for drafts", configWith(hybridWith("qwen3_5_text", set{"mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": false})), small("qwen3_5_text", nil), func(*Config) {}},
	} {
		got, err := ParseConfig(tc.config)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		tc.want(&tc.base)
		if !reflect.DeepEqual(*got, tc.base) {
			t.Errorf("%s:\n got %+v %+v %+v\nwant %+v %+v %+v", tc.name, *got, got.Delta, got.Experts, tc.base, tc.base.Delta, tc.base.Experts)
		}
	}
}

// badHybrids are what hybrids are refused for.
var badHybrids = []struct {
	name   string
	change set
	want   string
}{
	{"value heads", hybridWith("qwen3_next", set{"linear_num_value_heads": 24}), "linear_num_value_heads: found 24, want a multiple of linear_num_key_heads 16"},
	{"no key heads", hybridWith("qwen3_next", set{"linear_num_key_heads": 0}), "linear_num_key_heads: found 0"},
	{"a huge head", hybridWith("qwen3_next", set{"linear_value_head_dim": 1 << 40}), "linear_value_head_dim: found 1099511627776"},
	{"a convolution of one row", hybridWith("qwen3_5", set{"linear_conv_kernel_dim": 1}), "linear_conv_kernel_dim: found 1, want a whole number from 2 to 8"},
	{"fewer kinds than layers", hybridWith("qwen3_next", set{"layer_types": []string{"linear_attention", "full_attention"}}), "layer_types: found 2, want one for each of num_hidden_layers 4"},
	{"another kind", hybridWith("qwen3_5", set{"layer_types": []string{"linear_attention", "full_attention", "sliding_attention", "full_attention"}}), `layer_types: found "sliding_attention", want full_attention or linear_attention`},
	{"no attention", hybridWith("qwen3_5", set{"full_attention_interval": 5}), "layer_types: found 4 layers of one kind"},
	{"attention alone", hybridWith("qwen3_5", set{"full_attention_interval": 1}), "layer_types: found 4 layers of one kind"},
	{"no interval", hybridWith("qwen3_5", set{"full_attention_interval": 0}), "full_attention_interval: found 0"},
	{"an odd rotation", hybridWith("qwen3_5", set{"head_dim": 60}), "partial_rotary_factor: found 0.25, 15 of head_dim 60: want an even number"},
	{"more than a head rotates", hybridWith("qwen3_5", set{"partial_rotary_factor": 1.5}), "partial_rotary_factor: found 1.5, 384 of head_dim 256"},
	{"nothing rotates", hybridWith("qwen3_5", set{"rope_parameters": set{"partial_rotary_factor": -1}}), "partial_rotary_factor: found -1"},
	{"sections of another sum", hybridWith("qwen3_5", set{"rope_parameters": set{"mrope_section": []int{11, 11, 11}}}), "rope_parameters: mrope_section: found 33 in all, want 32"},
	{"a negative section", hybridWith("qwen3_5", set{"rope_parameters": set{"mrope_section": []int{-1, 33}}}), "mrope_section: found -1"},
	{"more experts for a token", hybridWith("qwen3_5_moe", set{"num_experts": 4}), "num_experts_per_tok: found 8, want at most num_experts 4"},
	{"no expert for a token", hybridWith("qwen3_next", set{"num_experts_per_tok": 0}), "num_experts_per_tok: found 0"},
	{"no experts, which each layer has", hybridWith("qwen3_5_moe", set{"num_experts": 0}), "num_experts: found 0"},
	{"biases", hybridWith("qwen3_next", set{"attention_bias": true}), "attention_bias: found true, want false"},
	{"two counts", hybridWith("qwen3_next", set{"num_experts": 16, "num_local_experts": 32}), "num_local_experts: found 32, want as num_experts 16"},
	{"dense layers of no size", hybridWith("qwen3_next", set{"intermediate_size": nil, "mlp_only_layers": []int{2}}), "intermediate_size: missing, and layer 2 has no experts"},
	{"two layers for drafts", hybridWith("qwen3_5", set{"mtp_num_hidden_layers": 2}), "mtp_num_hidden_layers: found 2, want a whole number from 0 to 1"},
	{"an embedding for drafts", hybridWith("qwen3_5", set{"mtp_use_dedicated_embeddings": true}), "mtp_use_dedicated_embeddings: found true, want false"},
	{"another gate", hybridWith("qwen3_5", set{"output_gate_type": "sigmoid"}), `output_gate_type: found "sigmoid", want silu or swish`},
	{"a sliding window", hybridWith("qwen3_next", set{"use_sliding_window": true}), "use_sliding_window: found true"},
	{"another order", hybridWith("qwen3_next", set{"linear_value_head_order": "random"}), `linear_value_head_order: found "random", want grouped or tiled`},
	{"a text that is none", hybridWith("qwen3_5", set{"text_config": 7}), "text_config: found 7, want an object"},
}

func TestParseConfigRefusesHybrids(t *testing.T) {
	for _, tc := range badHybrids {
		_, err := ParseConfig(configWith(tc.change))
		testhelp.OneLine(t, tc.name, err, tc.want)
	}
	_, err := ParseConfig(wrapper("qwen3_5", nil, set{"linear_num_value_heads": 24}))
	testhelp.OneLine(t, "within text_config", err, "linear_num_value_heads: found 24")
}

// The golden hybrids are read as they were made.
func TestParseConfigGoldenHybrids(t *testing.T) {
	for name, want := range map[string]string{
		"qwen3-next-tiny":   "qwen3_next, 4 layers, hidden 128, 4 heads, 2 kv heads of 64, mlp 256, vocab 1024, 3 layers of DeltaNet with 2 key heads of 32 and 4 value heads of 32, 2 of 8 experts of 64 and one of 64",
		"qwen3-5-text-tiny": "qwen3_5_text, 4 layers, hidden 128, 4 heads, 2 kv heads of 64, mlp 256, vocab 1024, 3 layers of DeltaNet with 2 key heads of 32 and 4 value heads of 32",
	} {
		data, err := os.ReadFile(filepath.Join("../model/testdata/golden", name, "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		c, err := ParseConfig(data)
		if err != nil || c.String() != want || c.Rope.HeadDim != 16 || !c.AttentionGate {
			t.Errorf("%s: %v, %v, want %s", name, c, err, want)
		}
	}
}
