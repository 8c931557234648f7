package model_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"windrow/checkpoint"
	"windrow/cpu"
	"windrow/model"
)

// TestRefusesHybrids: what a hybrid lacks, or has in another shape, is named in one line.
func TestRefusesHybrids(t *testing.T) {
	b, err := cpu.New(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const delta, attention, mlp = "model.layers.1.linear_attn.", "model.layers.3.self_attn.", "model.layers.2.mlp."
	remove := func(name string) func(*form) { return func(f *form) { delete(f.tensors, name) } }
	shape := func(name string, shape ...int) func(*form) {
		return func(f *form) {
			r := f.tensors[name]
			r.Shape = shape
			f.tensors[name] = r
		}
	}
	number := func(name string, at int, bits uint16) func(*form) {
		return func(f *form) {
			r := f.tensors[name]
			r.Data = slices.Clone(r.Data)
			binary.LittleEndian.PutUint16(r.Data[2*at:], bits)
			f.tensors[name] = r
		}
	}
	field := func(name string, value any) func(*form) { return func(f *form) { f.config[name] = value } }
	for _, tc := range []struct {
		model, name string
		change      func(*form)
		want        string
	}{
		{"qwen3-next-tiny", "no decay", remove(delta + "A_log"), "tensor " + delta + "A_log is missing"},
		{"qwen3-next-tiny", "a decay too few", shape(delta+"A_log", 2, 2), "tensor " + delta + "A_log: shape [2 2], the config says [4]"},
		{"qwen3-next-tiny", "no projection", remove(delta + "in_proj_qkvz.weight"), "tensor " + delta + "in_proj_qkv.weight is missing"},
		{"qwen3-5-text-tiny", "no z", remove(delta + "in_proj_z.weight"), "tensor " + delta + "in_proj_z.weight is missing"},
		{"qwen3-5-text-tiny", "no a", remove(delta + "in_proj_a.weight"), "tensor " + delta + "in_proj_a.weight is missing"},
		{"qwen3-next-tiny", "no convolution", remove(delta + "conv1d.weight"), "tensor " + delta + "conv1d.weight is missing"},
		{"qwen3-next-tiny", "other taps", field("linear_conv_kernel_dim", 3.0), "tensor model.layers.0.linear_attn.conv1d.weight: shape [256 1 4], the config says [256 1 3]"},
		{"qwen3-next-tiny", "a kernel of MLX's beside others", shape(delta+"conv1d.weight", 256, 4, 1), "tensors model.layers.0.linear_attn.conv1d.weight and " + delta + "conv1d.weight: shapes of two forms"},
		{"qwen3-next-tiny", "other heads", field("linear_num_value_heads", 8.0), "in_proj_qkvz.weight: shape [384 128], the config says [640 128]"},
		{"qwen3-5-text-tiny", "no gate where there is one", field("attn_output_gate", false), "tensor " + attention + "q_proj.weight: shape [512 128], the config says [256 128]"},
		{"qwen3-next-tiny", "attention where DeltaNet is", field("layer_types", []any{"linear_attention", "full_attention", "linear_attention", "full_attention"}), "tensor model.layers.1.self_attn.q_proj.weight is missing"},
		{"qwen3-next-tiny", "an expert", remove(mlp + "experts.5.up_proj.weight"), "tensor " + mlp + "experts.5.up_proj.weight is missing"},
		{"qwen3-next-tiny", "a router for fewer", field("num_experts", 7.0), "tensor model.layers.0.mlp.gate.weight: shape [8 128], the config says [7 128]"},
		{"qwen3-next-tiny", "a NaN in a router", number(mlp+"gate.weight", 3*128+5, 0x7fc0), "tensor " + mlp + "gate.weight: element [3 5] is NaN, want a finite number"},
		{"qwen3-moe-tiny", "an infinity in a router", number("model.layers.1.mlp.gate.weight", 0, 0xff80), "tensor model.layers.1.mlp.gate.weight: element [0 0] is -Inf, want a finite number"},
		{"qwen3-next-tiny", "a decay that is no number", number(delta+"A_log", 2, 0x7fc0), "tensor " + delta + "A_log: element 2 is NaN, want a finite number"},
		{"qwen3-5-moe-tiny", "fused experts of another width", field("moe_intermediate_size", 16.0), "tensor model.layers.0.mlp.experts.down_proj: shape [8 64 32], the config says [8 64 16]"},
		{"qwen3-next-tiny", "no shared expert", remove(mlp + "shared_expert.up_proj.weight"), "tensor " + mlp + "shared_expert.up_proj.weight is missing"},
		{"qwen3-next-tiny", "no weight of the shared expert", remove(mlp + "shared_expert_gate.weight"), "tensor " + mlp + "shared_expert_gate.weight is missing"},
		{"qwen3-next-tiny", "a norm", remove(delta + "norm.weight"), "tensor " + delta + "norm.weight is missing"},
		{"qwen3-next-tiny", "a norm that is a matrix", shape("model.layers.0.input_layernorm.weight", 2, 64), "tensor model.layers.0.input_layernorm.weight: bf16 of shape [2 64], want floats of one dimension"},
		{"qwen3-5-drafts", "two layers for drafts", func(f *form) {
			r := f.tensors["mtp.fc.weight"]
			r.Name = "mtp.layers.1.self_attn.q_proj.weight"
			f.tensors[r.Name] = r
		}, `model.safetensors: tensor "mtp.layers.1.self_attn.q_proj.weight": want one layer in a head for drafts, mtp.layers.0`},
	} {
		f := goldenForm(t, tc.model)
		tc.change(f)
		c, err := f.tryOpen(t)
		if err == nil {
			_, err = model.Load(b, c)
			checked := model.Check(c)
			if unread := strings.HasSuffix(tc.want, "want a finite number") && checked == nil; !unread && fmt.Sprint(checked) != fmt.Sprint(err) {
				t.Errorf("%s: loaded %v, checked %v", tc.name, err, checked)
			}
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
		}
	}
	for _, tc := range []struct {
		model   string
		devices int
		want    string
	}{
		{"qwen3-next-tiny", 4, "4 GPUs cannot share this model: 2 key heads of DeltaNet do not divide by 4; it runs on 1, 2"},
		{"qwen3-5-text-tiny", 3, "3 GPUs cannot share this model: 2 KV heads do not divide by 3; it runs on 1, 2"},
	} {
		_, err = model.Load(spying(t, tc.devices), goldenForm(t, tc.model).open(t))
		if err == nil || err.Error() != tc.want {
			t.Errorf("%s, %d devices: %v, want %s", tc.model, tc.devices, err, tc.want)
		}
	}
	// What each of two has: half of what is cut, and all of the rest.
	src := goldenForm(t, "qwen3-next-tiny").open(t)
	share := model.ShareOf(src, 2)
	if got, want := model.ShareOf(src, 1), checkpoint.ReadBytes(src); got.ReadBytes != want || got.WeightBytes != checkpoint.Inspect(src).Bytes {
		t.Errorf("one GPU: %+v, want %d bytes read", got, want)
	}
	if want := model.DeviceBytes(src, 2, true); share.WeightBytes != want || share.StateBytes*2 != src.Config().SequenceBytes(16) {
		t.Errorf("each of two: %+v, want %d bytes of weights", share, want)
	}
	whole := int64(0) // that a row reads on each
	for _, name := range src.Names() {
		x, _ := src.Tensor(name)
		if strings.Contains(name, "norm.weight") || strings.Contains(name, "layernorm") || strings.HasSuffix(name, "mlp.gate.weight") || strings.Contains(name, "shared_expert_gate") {
			whole += int64(x.Bytes())
		}
	}
	if got, want := 2*share.ReadBytes, checkpoint.ReadBytes(src)+whole; got != want {
		t.Errorf("two read %d bytes, want %d", got, want)
	}
	// A head that a config calls tied is the one that is there; one that it does not is
	// the embedding where there is none.
	for _, tied := range []bool{true, false} {
		f := goldenForm(t, "qwen3-next-tiny")
		f.config["tie_word_embeddings"] = tied
		if c := f.open(t).Config(); c.TieEmbeddings {
			t.Errorf("tied %v: the head is there, and is the embedding", tied)
		}
		delete(f.tensors, "lm_head.weight")
		if c := f.open(t).Config(); !c.TieEmbeddings {
			t.Errorf("tied %v: there is no head, nor is it the embedding", tied)
		}
	}
}
