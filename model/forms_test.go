package model_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/cpu"
	"windrow/model"
	"windrow/quant"
)

const mixtureGolden = "testdata/golden/qwen3-moe-tiny/"

// rawTensors are those of the golden mixture, by name.
func rawTensors(t *testing.T) map[string]checkpoint.RawTensor {
	t.Helper()
	return goldenForm(t, "qwen3-moe-tiny").tensors
}

// folder is a checkpoint of some tensors, with a change to the config.
func folder(t *testing.T, tensors map[string]checkpoint.RawTensor, change map[string]any) (*checkpoint.Checkpoint, error) {
	t.Helper()
	data, err := os.ReadFile(mixtureGolden + "config.json")
	if err != nil {
		t.Fatal(err)
	}
	config := map[string]any{}
	if err := json.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	maps.Copy(config, change)
	if data, err = json.Marshal(config); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	list := slices.Collect(maps.Values(tensors))
	slices.SortFunc(list, func(a, b checkpoint.RawTensor) int { return cmp.Compare(a.Name, b.Name) })
	if err := checkpoint.WriteSafetensors(&file, nil, list); err != nil {
		t.Fatal(err)
	}
	return checkpoint.New(map[string][]byte{checkpoint.ConfigFile: data, checkpoint.WeightsFile: file.Bytes()})
}

// stack joins the matrices of all experts: stacked is the name of the whole, with #
// for the number of a layer, and parts those of each expert, one behind the other.
func stack(tensors map[string]checkpoint.RawTensor, layers, experts int, stacked string, parts ...string) {
	for layer := range layers {
		whole := checkpoint.RawTensor{Name: strings.ReplaceAll(stacked, "#", fmt.Sprint(layer))}
		for e := range experts {
			rows := 0
			for _, part := range parts {
				name := fmt.Sprintf("model.layers.%d.mlp.experts.%d.%s.weight", layer, e, part)
				r := tensors[name]
				delete(tensors, name)
				whole.DType, whole.Data = r.DType, append(whole.Data, r.Data...)
				rows += r.Shape[0]
				whole.Shape = []int{experts, rows, r.Shape[1]}
			}
		}
		tensors[whole.Name] = whole
	}
}

// logitsOf runs a prompt of all tokens in one forward.
func logitsOf(t *testing.T, src checkpoint.Source, exact bool) []float32 {
	t.Helper()
	b, err := cpu.New(cpu.Options{Exact: exact, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	m, err := model.Load(b, src)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	const rows = 40
	cache, err := m.NewCache(model.CacheOptions{Capacity: rows, MaxRows: rows, DType: backend.KVF32})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	batch := &model.Batch{Spans: []model.Span{{Cache: cache, Rows: rows}}}
	for i := range int32(rows) {
		batch.Tokens, batch.Positions = append(batch.Tokens, i*37%int32(src.Config().VocabSize-24)), append(batch.Positions, i)
		batch.Want = append(batch.Want, model.Wanted{Row: i, Logits: true})
	}
	results, err := m.Forward(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	var all []float32
	for _, r := range results {
		all = append(all, r.Logits...)
	}
	return all
}

func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d logits, want %d", what, len(got), len(want))
	}
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: logit %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// TestFormsOfExperts: a mixture has the same bits whether its experts are tensors of
// their own, stacks, stacks of gates and ups together, or those of a GGUF file.
func TestFormsOfExperts(t *testing.T) {
	const layers, experts = 4, 8
	for _, exact := range []bool{true, false} {
		c, err := folder(t, rawTensors(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		want := logitsOf(t, c, exact)

		tensors := rawTensors(t)
		stack(tensors, layers, experts, "model.layers.#.mlp.experts.gate_up_proj", "gate_proj", "up_proj")
		stack(tensors, layers, experts, "model.layers.#.mlp.experts.down_proj", "down_proj")
		c, err = folder(t, tensors, nil)
		if err != nil {
			t.Fatal(err)
		}
		sameBits(t, "fused", logitsOf(t, c, exact), want)

		tensors = rawTensors(t)
		for _, part := range []string{"gate_proj", "up_proj", "down_proj"} {
			stack(tensors, layers, experts, "model.layers.#.mlp.switch_mlp."+part+".weight", part)
		}
		c, err = folder(t, tensors, nil)
		if err != nil {
			t.Fatal(err)
		}
		sameBits(t, "stacked", logitsOf(t, c, exact), want)
		for _, fused := range []bool{false, true} {
			sameBits(t, fmt.Sprintf("gguf, gates and ups together %v", fused), logitsOf(t, mixtureGGUF(t, fused), exact), want)
		}
	}
}

// mixtureGGUF is the golden mixture as a GGUF file.
func mixtureGGUF(t *testing.T, fused bool) checkpoint.Source {
	t.Helper()
	tensors := rawTensors(t)
	names := strings.NewReplacer("model.layers.", "blk.", "input_layernorm", "attn_norm", "post_attention_layernorm", "ffn_norm", "self_attn.q_proj", "attn_q", "self_attn.k_proj", "attn_k",
		"self_attn.v_proj", "attn_v", "self_attn.o_proj", "attn_output", "self_attn.q_norm", "attn_q_norm", "self_attn.k_norm", "attn_k_norm", "mlp.gate.", "ffn_gate_inp.",
		"model.embed_tokens", "token_embd", "model.norm", "output_norm", "lm_head", "output")
	stack(tensors, 4, 8, "blk.#.ffn_down_exps.weight", "down_proj")
	if fused {
		stack(tensors, 4, 8, "blk.#.ffn_gate_up_exps.weight", "gate_proj", "up_proj")
	} else {
		stack(tensors, 4, 8, "blk.#.ffn_gate_exps.weight", "gate_proj")
		stack(tensors, 4, 8, "blk.#.ffn_up_exps.weight", "up_proj")
	}
	meta := []checkpoint.GGUFField{
		{Key: "general.architecture", Value: "qwen3moe"}, {Key: "qwen3moe.embedding_length", Value: uint32(128)}, {Key: "qwen3moe.block_count", Value: uint32(4)},
		{Key: "qwen3moe.attention.head_count", Value: uint32(4)}, {Key: "qwen3moe.attention.head_count_kv", Value: uint32(2)}, {Key: "qwen3moe.attention.key_length", Value: uint32(64)},
		{Key: "qwen3moe.attention.value_length", Value: uint32(64)}, {Key: "qwen3moe.attention.layer_norm_rms_epsilon", Value: float32(1e-6)},
		{Key: "qwen3moe.context_length", Value: uint32(4096)}, {Key: "qwen3moe.rope.freq_base", Value: float32(10000)},
		{Key: "qwen3moe.expert_count", Value: uint32(8)}, {Key: "qwen3moe.expert_used_count", Value: uint32(2)}, {Key: "qwen3moe.expert_feed_forward_length", Value: uint32(64)},
	}
	var list []checkpoint.GGUFTensor
	for _, r := range tensors {
		w, err := r.Weight()
		if err != nil {
			t.Fatal(err)
		}
		dt, data := backend.BF16, r.Data
		if len(r.Shape) == 1 { // as llama.cpp has them
			dt, data = backend.F32, floats(t, w)
		}
		list = append(list, checkpoint.GGUFTensor{Name: names.Replace(r.Name), DType: dt, Shape: r.Shape, Data: data})
	}
	slices.SortFunc(list, func(a, b checkpoint.GGUFTensor) int { return cmp.Compare(a.Name, b.Name) })
	var file bytes.Buffer
	if err := checkpoint.WriteGGUF(&file, meta, list); err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.NewGGUF(file.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func floats(t *testing.T, w backend.Tensor) []byte {
	t.Helper()
	v, err := quant.Vector(w)
	if err != nil {
		t.Fatal(err)
	}
	var data []byte
	for _, x := range v {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
	}
	return data
}

// TestMixtureWithoutExperts: a mixture of no experts is the dense model.
func TestMixtureWithoutExperts(t *testing.T) {
	want := logitsOf(t, goldenForm(t, "qwen3-untied").open(t), true)
	f := goldenForm(t, "qwen3-untied")
	f.config["model_type"], f.config["architectures"], f.config["num_experts"] = "qwen3_moe", []string{"Qwen3MoeForCausalLM"}, 0
	src := f.open(t)
	sameBits(t, "no experts", logitsOf(t, src, true), want)
	if in := checkpoint.Inspect(src); in.Experts != nil || in.IntermediateSize == 0 || model.CheckDevices(src, 2) != nil {
		t.Errorf("%+v, on two devices: %v", in, model.CheckDevices(src, 2))
	}
}

// TestRenormalisation: weights of experts that are not made to sum up to 1 where the
// model was trained with such are noticed.
func TestRenormalisation(t *testing.T) {
	right, err := folder(t, rawTensors(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := folder(t, rawTensors(t), map[string]any{"norm_topk_prob": false})
	if err != nil {
		t.Fatal(err)
	}
	want, got := logitsOf(t, right, true), logitsOf(t, wrong, true)
	var difference, norm float64
	for i, x := range want {
		difference += float64(x-got[i]) * float64(x-got[i])
		norm += float64(x) * float64(x)
	}
	if e := math.Sqrt(difference / norm); e < 0.01 {
		t.Errorf("a relative difference of %.3g", e)
	}
}

// TestRefusesExperts: what a mixture lacks, or has in another shape, is named.
func TestRefusesExperts(t *testing.T) {
	b, err := cpu.New(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const expert = "model.layers.2.mlp.experts.5.up_proj.weight"
	for _, tc := range []struct {
		name   string
		change func(tensors map[string]checkpoint.RawTensor, config map[string]any)
		want   string
	}{
		{"an expert", func(x map[string]checkpoint.RawTensor, _ map[string]any) { delete(x, expert) }, "tensor " + expert + " is missing"},
		{"the router", func(x map[string]checkpoint.RawTensor, _ map[string]any) { delete(x, "model.layers.1.mlp.gate.weight") }, "tensor model.layers.1.mlp.gate.weight is missing"},
		{"an expert of another shape", func(x map[string]checkpoint.RawTensor, _ map[string]any) {
			r := x[expert]
			r.Shape = []int{128, 64}
			x[expert] = r
		}, "tensor " + expert + ": shape [128 64], the config says [64 128]"},
		{"a router for fewer", func(_ map[string]checkpoint.RawTensor, c map[string]any) { c["num_local_experts"] = 7 }, "tensor model.layers.0.mlp.gate.weight: shape [8 128], the config says [7 128]"},
		{"a stack of another shape", func(x map[string]checkpoint.RawTensor, _ map[string]any) {
			stack(x, 4, 8, "model.layers.#.mlp.experts.down_proj", "down_proj")
			r := x["model.layers.0.mlp.experts.down_proj"]
			r.Shape = []int{8, 64, 128}
			x[r.Name] = r
		}, "tensor model.layers.0.mlp.experts.down_proj: shape [8 64 128], the config says [8 128 64]"},
	} {
		tensors, change := rawTensors(t), map[string]any{}
		tc.change(tensors, change)
		c, err := folder(t, tensors, change)
		if err == nil {
			_, err = model.Load(b, c)
			if checked := model.Check(c); checked == nil || checked.Error() != tc.want {
				t.Errorf("%s: checked %v, want %s", tc.name, checked, tc.want)
			}
		}
		if err == nil || err.Error() != tc.want {
			t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
		}
	}
}
