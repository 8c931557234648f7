package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
)

// stackedModel lists the tensors of a mixture of one layer whose experts are stacked,
// matrices of projections marked, under the names of GGUF files and of MLX's folders.
var stackedModel = []struct {
	gguf, mlx string
	shape     []int
	matrix    bool
}{
	{"token_embd", "model.embed_tokens", []int{64, 64}, false},
	{"output_norm", "model.norm", []int{64}, false},
	{"blk.0.attn_norm", "model.layers.0.input_layernorm", []int{64}, false},
	{"blk.0.ffn_norm", "model.layers.0.post_attention_layernorm", []int{64}, false},
	{"blk.0.attn_q_norm", "model.layers.0.self_attn.q_norm", []int{32}, false},
	{"blk.0.attn_k_norm", "model.layers.0.self_attn.k_norm", []int{32}, false},
	{"blk.0.attn_q", "model.layers.0.self_attn.q_proj", []int{64, 64}, true},
	{"blk.0.attn_k", "model.layers.0.self_attn.k_proj", []int{32, 64}, true},
	{"blk.0.attn_v", "model.layers.0.self_attn.v_proj", []int{32, 64}, true},
	{"blk.0.attn_output", "model.layers.0.self_attn.o_proj", []int{64, 64}, true},
	{"blk.0.ffn_gate_inp", "model.layers.0.mlp.gate", []int{4, 64}, false},
	{"blk.0.ffn_gate_exps", "model.layers.0.mlp.switch_mlp.gate_proj", []int{4, 64, 64}, true},
	{"blk.0.ffn_up_exps", "model.layers.0.mlp.switch_mlp.up_proj", []int{4, 64, 64}, true},
	{"blk.0.ffn_down_exps", "model.layers.0.mlp.switch_mlp.down_proj", []int{4, 64, 64}, true},
}

// stackedGGUF is the mixture as a GGUF file with matrices in q8_0.
func stackedGGUF(t *testing.T, path string) {
	t.Helper()
	const a = "qwen3moe"
	fields := []checkpoint.GGUFField{
		{Key: "general.architecture", Value: a}, {Key: a + ".block_count", Value: uint32(1)}, {Key: a + ".embedding_length", Value: uint32(64)},
		{Key: a + ".feed_forward_length", Value: uint32(64)}, {Key: a + ".context_length", Value: uint32(512)}, {Key: a + ".expert_count", Value: uint32(4)},
		{Key: a + ".expert_used_count", Value: uint32(2)}, {Key: a + ".expert_feed_forward_length", Value: uint32(64)},
		{Key: a + ".attention.head_count", Value: uint32(2)}, {Key: a + ".attention.head_count_kv", Value: uint32(1)},
		{Key: a + ".attention.key_length", Value: uint32(32)}, {Key: a + ".attention.value_length", Value: uint32(32)},
		{Key: a + ".attention.layer_norm_rms_epsilon", Value: float32(1e-6)}, {Key: a + ".rope.freq_base", Value: float32(1e6)},
	}
	var list []checkpoint.GGUFTensor
	for _, x := range stackedModel {
		d := backend.F32
		if x.matrix {
			d = backend.Q8_0
		}
		made := backend.Tensor{Name: x.gguf + ".weight", DType: d, Shape: x.shape}.Allocated()
		list = append(list, checkpoint.GGUFTensor{Name: made.Name, DType: d, Shape: x.shape, Data: made.Data})
	}
	var file bytes.Buffer
	if err := checkpoint.WriteGGUF(&file, fields, list); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// stackedMLX is the mixture as a folder of MLX's with matrices in 4 bits.
func stackedMLX(t *testing.T, folder string) {
	t.Helper()
	config := map[string]any{
		"model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 1, "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1,
		"head_dim": 32, "max_position_embeddings": 512, "vocab_size": 64, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": true,
		"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": true, "decoder_sparse_step": 1,
		"quantization": map[string]any{"bits": 4, "group_size": 64, "model.embed_tokens": false, "model.layers.0.mlp.gate": false},
	}
	var list []checkpoint.RawTensor
	for _, x := range stackedModel {
		raw := func(name, dtype string, shape []int, data []byte) {
			list = append(list, checkpoint.RawTensor{Name: x.mlx + name, DType: dtype, Shape: shape, Data: data})
		}
		if !x.matrix {
			raw(".weight", "BF16", x.shape, backend.Tensor{DType: backend.BF16, Shape: x.shape}.Allocated().Data)
			continue
		}
		made := backend.Tensor{DType: backend.Affine4, Group: 64, Shape: x.shape}.Allocated()
		in := func(n int) []int { return append(slices.Clone(x.shape[:len(x.shape)-1]), n) }
		raw(".weight", "U32", in(64/8), made.Data)
		raw(".scales", "BF16", in(1), made.Scales)
		raw(".biases", "BF16", in(1), made.Biases)
	}
	data, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := checkpoint.WriteSafetensors(&file, nil, list); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{checkpoint.ConfigFile: data, checkpoint.WeightsFile: file.Bytes()} {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// called runs a command, and wants its exit code.
func called(t *testing.T, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	if got := run(append([]string{"windrow"}, args...), strings.NewReader(""), &out, &err); got != code {
		t.Errorf("%s: exit code %d, want %d: %s", strings.Join(args, " "), got, code, &err)
	}
	return out.String(), err.String()
}

// TestInspectIncomplete: what a folder lacks is shown by the figures' side, and makes the
// command fail as generate will.
func TestInspectIncomplete(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "m")
	stackedMLX(t, folder)
	path := filepath.Join(folder, checkpoint.WeightsFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"model.norm.weight":                              "tensor model.norm.weight is missing",
		"model.layers.0.self_attn.q_proj.":               "tensor model.layers.0.self_attn.q_proj.weight is missing",
		"model.layers.0.mlp.switch_mlp.down_proj.":       "tensor model.layers.0.mlp.experts.0.down_proj.weight is missing",
		"model.layers.0.post_attention_layernorm.weight": "tensor model.layers.0.post_attention_layernorm.weight is missing",
	} {
		s, err := checkpoint.ReadSafetensors(whole)
		if err != nil {
			t.Fatal(err)
		}
		list := slices.DeleteFunc(slices.Clone(s.Tensors), func(r checkpoint.RawTensor) bool { return strings.HasPrefix(r.Name, name) })
		var file bytes.Buffer
		if err := checkpoint.WriteSafetensors(&file, nil, list); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, flag := range []string{"--tensors", "--json"} {
			out, stderr := called(t, exitFailure, "inspect", folder, flag)
			if stderr != "windrow: inspect: generate will refuse m: "+want+"\n" || !strings.Contains(out, "qwen3_moe") {
				t.Errorf("without %s: %q, %q", name, stderr, out)
			}
		}
	}
	const golden = "../../model/testdata/golden/qwen3-5-drafts"
	if _, stderr := called(t, exitOK, "inspect", golden); stderr != "" {
		t.Errorf("%q", stderr)
	}
}

// Quantised experts of one tensor are looked at as those of tensors of their own.
func TestInspectStacks(t *testing.T) {
	dir := t.TempDir()
	file, folder, fused := filepath.Join(dir, "moe.gguf"), filepath.Join(dir, "mlx"), filepath.Join(dir, "fused")
	stackedGGUF(t, file)
	stackedMLX(t, folder)
	called(t, 0, "quantize", "../../model/testdata/golden/qwen3-5-moe-tiny", fused, "--bits", "4", "--group", "32")
	for model, want := range map[string]struct{ path, tensor string }{
		file:   {"q8_0: ", "model.layers.0.mlp.switch_mlp.gate_proj.weight q8_0 [4 64 64] 17 KiB"},
		folder: {"affine4 g64: ", "model.layers.0.mlp.switch_mlp.down_proj.weight affine4 g64 [4 64 64] 9 KiB"},
		fused:  {"affine4 g32: ", "model.layers.2.mlp.switch_mlp.up_proj.weight affine4 g32 [8 32 64] 10 KiB"},
	} {
		table, stderr := called(t, 0, "inspect", model, "--tensors")
		text := strings.Join(strings.Fields(table), " ")
		if !strings.Contains(text, want.tensor) || !strings.Contains(text, "quantised "+want.path) || stderr != "" {
			t.Errorf("%s: want %q and %q in\n%s%s", filepath.Base(model), want.tensor, want.path, table, stderr)
		}
		out, _ := called(t, 0, "inspect", model, "--json", "--tensors")
		var in inspection
		if err := json.Unmarshal([]byte(out), &in); err != nil || len(in.QuantizedKernels) == 0 || !slices.ContainsFunc(in.TensorList, func(x tensorInfo) bool {
			return len(x.Shape) == 3 && strings.HasPrefix(want.path, format(x.DType, x.Group))
		}) {
			t.Errorf("%s: %v, kernels %q", filepath.Base(model), err, in.QuantizedKernels)
		}
	}
}
