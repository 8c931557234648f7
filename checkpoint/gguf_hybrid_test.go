package checkpoint

import (
	"encoding/binary"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/internal/testhelp"
)

// hybridGGUF is a hybrid of three layers, the second with attention, with a head for
// drafts behind them; change edits its metadata (nil removes a key), more adds tensors.
func hybridGGUF(t testing.TB, architecture string, change map[string]any, more ...GGUFTensor) []byte {
	t.Helper()
	fields := map[string]any{
		"block_count": uint32(4), "nextn_predict_layers": uint32(1), "embedding_length": uint32(32), "feed_forward_length": uint32(48), "context_length": uint32(1000),
		"attention.head_count": uint32(4), "attention.head_count_kv": uint32(2), "attention.key_length": uint32(16), "attention.value_length": uint32(16),
		"attention.layer_norm_rms_epsilon": float32(1e-6), "rope.freq_base": float32(1e7), "rope.dimension_count": uint32(4), "rope.dimension_sections": []int32{1, 1, 0, 0},
		"full_attention_interval": uint32(2), "ssm.conv_kernel": uint32(3), "ssm.state_size": uint32(8), "ssm.group_count": uint32(2), "ssm.time_step_rank": uint32(4), "ssm.inner_size": uint32(40),
	}
	if architecture != "qwen35" {
		maps.Copy(fields, map[string]any{"expert_count": uint32(4), "expert_used_count": uint32(2), "expert_feed_forward_length": uint32(24), "expert_shared_feed_forward_length": uint32(20)})
	}
	maps.Copy(fields, change)
	metadata := []GGUFField{{"general.architecture", architecture}}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if fields[key] != nil {
			metadata = append(metadata, GGUFField{architecture + "." + key, fields[key]})
		}
	}
	var tensors []GGUFTensor
	add := func(name string, shape ...int) {
		x := backend.Tensor{Shape: shape}
		tensors = append(tensors, GGUFTensor{name, backend.F32, shape, make([]byte, 4*x.Elements())})
	}
	add("token_embd.weight", 64, 32)
	add("output_norm.weight", 32)
	add("blk.0.attn_norm.weight", 32)
	add("blk.0.post_attention_norm.weight", 32)
	add("blk.0.attn_qkv.weight", 72, 32)
	add("blk.0.attn_gate.weight", 40, 32)
	add("blk.0.ssm_ba.weight", 8, 32)
	add("blk.0.ssm_conv1d.weight", 72, 3)
	add("blk.0.ssm_dt.bias", 4)
	add("blk.0.ssm_norm.weight", 10)
	add("blk.0.ssm_out.weight", 32, 40)
	add("blk.1.attn_q.weight", 128, 32)
	add("blk.3.attn_q.weight", 128, 32)
	add("blk.3.nextn.eh_proj.weight", 32, 64)
	add("blk.3.nextn.enorm.weight", 32)
	if architecture != "qwen35" {
		add("blk.0.ffn_gate_inp_shexp.weight", 32)
		add("blk.0.ffn_gate_shexp.weight", 20, 32)
		add("blk.0.ffn_gate_up_exps.weight", 4, 48, 32)
		add("blk.3.ffn_down_exps.weight", 4, 32, 24)
	}
	decays := GGUFTensor{"blk.0.ssm_a", backend.F32, []int{4}, nil}
	for _, a := range []float64{-1, -16, -math.Exp(0.3), -math.Exp(float64(float32(-6.9)))} {
		decays.Data = binary.LittleEndian.AppendUint32(decays.Data, math.Float32bits(float32(a)))
	}
	return writeGGUF(t, metadata, append(append(tensors, decays), more...))
}

func TestGGUFHybrid(t *testing.T) {
	for architecture, want := range map[string]string{
		"qwen3next": "qwen3_next, 3 layers, hidden 32, 4 heads, 2 kv heads of 16, mlp 48, vocab 64, 2 layers of DeltaNet with 2 key heads of 8 and 4 value heads of 10, 2 of 4 experts of 24 and one of 20, tied, a head for drafts",
		"qwen35":    "qwen3_5_text, 3 layers, hidden 32, 4 heads, 2 kv heads of 16, mlp 48, vocab 64, 2 layers of DeltaNet with 2 key heads of 8 and 4 value heads of 10, tied, a head for drafts",
		"qwen35moe": "qwen3_5_moe_text, 3 layers, hidden 32, 4 heads, 2 kv heads of 16, mlp 48, vocab 64, 2 layers of DeltaNet with 2 key heads of 8 and 4 value heads of 10, 2 of 4 experts of 24 and one of 20, tied, a head for drafts",
	} {
		open := func(change map[string]any, more ...GGUFTensor) *Checkpoint {
			t.Helper()
			c, err := NewGGUF(hybridGGUF(t, architecture, change, more...))
			if err != nil {
				t.Fatalf("%s: %v", architecture, err)
			}
			return c
		}
		c := open(nil)
		k := c.Config()
		if k.String() != want {
			t.Errorf("%s: %s, want %s", architecture, k, want)
		}
		if k.Rope.HeadDim != 4 || k.Rope.Theta != 1e7 || !k.AttentionGate || k.Delta.Conv != 3 || k.Delta.Tiled != (architecture != "qwen3next") ||
			!reflect.DeepEqual(k.Delta.Layers, []bool{true, false, true}) || k.Experts != nil && (!k.Experts.Renormalise || k.Experts.Step != 1) {
			t.Errorf("%s: %+v %+v %+v", architecture, k, k.Delta, k.Experts)
		}
		shapes := map[string][]int{
			"model.layers.0.input_layernorm.weight": {32}, "model.layers.0.post_attention_layernorm.weight": {32},
			"model.layers.0.linear_attn.in_proj_qkv.weight": {72, 32}, "model.layers.0.linear_attn.in_proj_z.weight": {40, 32}, "model.layers.0.linear_attn.in_proj_ba.weight": {8, 32},
			"model.layers.0.linear_attn.conv1d.weight": {72, 1, 3}, "model.layers.0.linear_attn.dt_bias": {4}, "model.layers.0.linear_attn.A_log": {4},
			"model.layers.0.linear_attn.norm.weight": {10}, "model.layers.0.linear_attn.out_proj.weight": {32, 40}, "model.layers.1.self_attn.q_proj.weight": {128, 32},
			"mtp.fc.weight": {32, 64}, "mtp.pre_fc_norm_embedding.weight": {32}, "mtp.layers.0.self_attn.q_proj.weight": {128, 32},
		}
		if k.Experts != nil {
			maps.Copy(shapes, map[string][]int{"model.layers.0.mlp.shared_expert_gate.weight": {1, 32}, "model.layers.0.mlp.shared_expert.gate_proj.weight": {20, 32},
				"model.layers.0.mlp.experts.gate_up_proj": {4, 48, 32}, "mtp.layers.0.mlp.switch_mlp.down_proj.weight": {4, 32, 24}})
		}
		for name, shape := range shapes {
			if x, ok := c.Tensor(name); !ok || !slices.Equal(x.Shape, shape) {
				t.Errorf("%s: %s has shape %v, %v, want %v", architecture, name, x.Shape, ok, shape)
			}
		}
		logs, _ := c.Tensor("model.layers.0.linear_attn.A_log")
		for i, want := range []float32{1, 16, float32(math.Exp(0.3)), float32(math.Exp(float64(float32(-6.9))))} {
			l := math.Float32frombits(binary.LittleEndian.Uint32(logs.Data[4*i:]))
			if got := float32(math.Exp(float64(l))); got != want {
				t.Errorf("%s: decay %d is exp(%v) = %v, want %v", architecture, i, l, got, want)
			}
		}
		if k := open(map[string]any{"attention.recurrent_layers": []bool{false, true, true, false}}).Config(); !reflect.DeepEqual(k.Delta.Layers, []bool{false, true, true}) {
			t.Errorf("%s: layers %v", architecture, k.Delta.Layers)
		}
		if k := open(map[string]any{"attention.recurrent_layers": []int32{1, 1, 0}, "rope.dimension_sections": nil}).Config(); !reflect.DeepEqual(k.Delta.Layers, []bool{true, true, false}) {
			t.Errorf("%s: layers %v", architecture, k.Delta.Layers)
		}
		if k := open(map[string]any{"ssm.group_count": uint32(4)}).Config(); k.Delta.Tiled {
			t.Errorf("%s: one value head a key head, in two orders", architecture)
		}
		if k := open(map[string]any{"expert_shared_feed_forward_length": nil}).Config(); k.Experts != nil && k.Experts.SharedInnerSize != 20 {
			t.Errorf("%s: a shared expert of %d", architecture, k.Experts.SharedInnerSize)
		}
	}
	// Files of before 2026 have Qwen3-Next's q, k, v and z in one tensor.
	c, err := NewGGUF(hybridGGUF(t, "qwen3next", nil, GGUFTensor{"blk.2.ssm_in.weight", backend.F32, []int{112, 32}, make([]byte, 112*32*4)}))
	if err != nil {
		t.Fatal(err)
	}
	if x, ok := c.Tensor("model.layers.2.linear_attn.in_proj_qkvz.weight"); !ok || x.Shape[0] != 112 {
		t.Errorf("ssm_in: %v, %v", x.Shape, ok)
	}
}

var badHybridGGUFs = []struct {
	name   string
	change map[string]any
	more   []GGUFTensor
	want   string
}{
	{"an inner size", map[string]any{"ssm.inner_size": uint32(42)}, nil, "qwen35moe.ssm.inner_size: found 42, want a multiple of ssm.time_step_rank 4"},
	{"no inner size", map[string]any{"ssm.inner_size": nil}, nil, "qwen35moe.ssm.inner_size: missing"},
	{"no value heads", map[string]any{"ssm.time_step_rank": uint32(0)}, nil, "ssm.inner_size: found 40, want a multiple of ssm.time_step_rank 0"},
	{"value heads", map[string]any{"ssm.group_count": uint32(3)}, nil, "linear_num_value_heads: found 4, want a multiple of linear_num_key_heads 3"},
	{"no kernel", map[string]any{"ssm.conv_kernel": nil}, nil, "qwen35moe.ssm.conv_kernel: missing"},
	{"half a state", map[string]any{"ssm.state_size": float32(0.5)}, nil, "qwen35moe.ssm.state_size: found 0.5, want a whole number"},
	{"a state as text", map[string]any{"ssm.state_size": "8"}, nil, `qwen35moe.ssm.state_size: found "8", want a whole number`},
	{"drafts alone", map[string]any{"nextn_predict_layers": uint32(4)}, nil, "qwen35moe.nextn_predict_layers: found 4, want fewer than block_count 4"},
	{"two heads for drafts", map[string]any{"nextn_predict_layers": uint32(2)}, nil, "mtp_num_hidden_layers: found 2"},
	{"marks of fewer layers", map[string]any{"attention.recurrent_layers": []bool{true, false}}, nil, "qwen35moe.attention.recurrent_layers: found 2, want one for each of 4 blocks"},
	{"marks that are none", map[string]any{"attention.recurrent_layers": "yes"}, nil, "qwen35moe.attention.recurrent_layers: found 0"},
	{"no interval", map[string]any{"full_attention_interval": uint32(0)}, nil, "full_attention_interval: found 0"},
	{"an odd rotation", map[string]any{"rope.dimension_count": uint32(3), "rope.dimension_sections": nil}, nil, "partial_rotary_factor: found 0.1875, 3 of head_dim 16"},
	{"more than a head rotates", map[string]any{"rope.dimension_count": uint32(32), "rope.dimension_sections": nil}, nil, "partial_rotary_factor: found 2"},
	{"no rotation", map[string]any{"rope.dimension_count": nil}, nil, "qwen35moe.rope.dimension_count: missing"},
	{"sections", map[string]any{"rope.dimension_sections": []int32{11, 11, 10, 0}}, nil, "qwen35moe.rope.dimension_sections: found"},
	{"no head dimension", map[string]any{"attention.key_length": nil}, nil, "qwen35moe.attention.key_length: missing"},
	{"more experts for a token", map[string]any{"expert_used_count": uint32(5)}, nil, "num_experts_per_tok: found 5, want at most num_experts 4"},
	{"no experts for a token", map[string]any{"expert_used_count": uint32(0)}, nil, "num_experts_per_tok: found 0"},
	{"an embedding for drafts", nil, []GGUFTensor{{"blk.3.nextn.embed_tokens.weight", backend.F32, []int{1}, make([]byte, 4)}}, "mtp_use_dedicated_embeddings: found true"},
	{"a head of the drafts' own", nil, []GGUFTensor{{"blk.3.nextn.shared_head_head.weight", backend.F32, []int{1}, make([]byte, 4)}}, "mtp_use_dedicated_embeddings: found true"},
	{"a decay that grows", nil, []GGUFTensor{{"blk.2.ssm_a", backend.F32, []int{1}, make([]byte, 4)}}, `gguf tensor "blk.2.ssm_a": element 0 is 0, want −exp(A_log): a negative number`},
	{"a draft's norm within the layers", nil, []GGUFTensor{{"blk.1.nextn.hnorm.weight", backend.F32, []int{1}, make([]byte, 4)}}, `gguf tensor "blk.1.nextn.hnorm.weight": unknown`},
}

func TestGGUFRefusesHybrids(t *testing.T) {
	for _, tc := range badHybridGGUFs {
		_, err := NewGGUF(hybridGGUF(t, "qwen35moe", tc.change, tc.more...))
		testhelp.OneLine(t, tc.name, err, tc.want)
	}
	if _, err := NewGGUF(hybridGGUF(t, "qwen35", nil, GGUFTensor{"blk.0.ffn_gate_inp.weight", backend.F32, []int{4, 32}, make([]byte, 512)})); err == nil || !strings.Contains(err.Error(), "unknown") {
		t.Errorf("a router in a model without experts: %v", err)
	}
}
