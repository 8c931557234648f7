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
)

// form is a model in the making: tensors by name, as Hugging Face has them, and the
// fields of its config.json.
type form struct {
	tensors map[string]checkpoint.RawTensor
	config  map[string]any
}

// goldenForm is a golden model, flat and without tensors of images.
func goldenForm(t *testing.T, name string) *form {
	t.Helper()
	folder := "testdata/golden/" + name + "/"
	data, err := os.ReadFile(folder + "model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	s, err := checkpoint.ReadSafetensors(data)
	if err != nil {
		t.Fatal(err)
	}
	f := &form{tensors: map[string]checkpoint.RawTensor{}}
	for _, r := range s.Tensors {
		if !strings.HasPrefix(r.Name, "model.visual.") {
			r.Name = strings.Replace(r.Name, "model.language_model.", "model.", 1)
			f.tensors[r.Name] = r
		}
	}
	if data, err = os.ReadFile(folder + "config.json"); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &f.config); err != nil {
		t.Fatal(err)
	}
	if text, ok := f.config["text_config"].(map[string]any); ok {
		f.config = text
	}
	return f
}

// open is the form as a folder.
func (f *form) open(t *testing.T) checkpoint.Source {
	t.Helper()
	c, err := f.tryOpen(t)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (f *form) tryOpen(t *testing.T) (*checkpoint.Checkpoint, error) {
	t.Helper()
	config, err := json.Marshal(f.config)
	if err != nil {
		t.Fatal(err)
	}
	list := slices.Collect(maps.Values(f.tensors))
	slices.SortFunc(list, func(a, b checkpoint.RawTensor) int { return cmp.Compare(a.Name, b.Name) })
	var file bytes.Buffer
	if err := checkpoint.WriteSafetensors(&file, nil, list); err != nil {
		t.Fatal(err)
	}
	return checkpoint.New(map[string][]byte{checkpoint.ConfigFile: config, checkpoint.WeightsFile: file.Bytes()})
}

func (f *form) size(name string) int { return int(f.config[name].(float64)) }

// rename moves a tensor.
func (f *form) rename(from, to string) {
	r, ok := f.tensors[from]
	if !ok {
		return
	}
	delete(f.tensors, from)
	r.Name = to
	f.tensors[to] = r
}

// each goes through the names that end so.
func (f *form) each(suffix string, do func(name string)) {
	for _, name := range slices.Sorted(maps.Keys(f.tensors)) {
		if strings.HasSuffix(name, suffix) {
			do(name)
		}
	}
}

// pick is a tensor of some of another's parts: of its rows, or of an array's elements.
func pick(r checkpoint.RawTensor, rows []int) checkpoint.RawTensor {
	stride := len(r.Data) / r.Shape[0]
	var data []byte
	for _, o := range rows {
		data = append(data, r.Data[o*stride:(o+1)*stride]...)
	}
	r.Data, r.Shape = data, append([]int{len(rows)}, r.Shape[1:]...)
	return r
}

// pickColumns is a matrix of bf16 with its columns in another order.
func pickColumns(r checkpoint.RawTensor, columns []int) checkpoint.RawTensor {
	out, in := r.Shape[0], r.Shape[1]
	data := make([]byte, 0, len(r.Data))
	for o := range out {
		for _, i := range columns {
			data = append(data, r.Data[2*(o*in+i):2*(o*in+i)+2]...)
		}
	}
	r.Data = data
	return r
}

// run is the numbers from first on.
func run(first, n int) (list []int) {
	for i := range n {
		list = append(list, first+i)
	}
	return list
}

// asFloats makes a vector one of f32, each element by a function.
func (f *form) asFloats(t *testing.T, name string, of func(x float64) float64) {
	t.Helper()
	r := f.tensors[name]
	w, err := r.Weight()
	if err != nil {
		t.Fatal(err)
	}
	shape := w.Shape
	w.Shape = []int{w.Elements()}
	raw := floats(t, w)
	for i := 0; i < len(raw); i += 4 {
		x := math.Float32frombits(binary.LittleEndian.Uint32(raw[i:]))
		binary.LittleEndian.PutUint32(raw[i:], math.Float32bits(float32(of(float64(x)))))
	}
	f.tensors[name] = checkpoint.RawTensor{Name: name, DType: "F32", Shape: shape, Data: raw}
}

// inF32 makes each matrix one of f32.
func (f *form) inF32(t *testing.T) {
	for _, name := range slices.Collect(maps.Keys(f.tensors)) {
		f.asFloats(t, name, func(x float64) float64 { return x })
	}
}

// wholeNorms adds 1 to each norm that is stored as what it is above 1.
func (f *form) wholeNorms(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(f.tensors)) {
		if strings.Contains(name, "norm") && !strings.Contains(name, "linear_attn.norm") {
			f.asFloats(t, name, func(x float64) float64 { return 1 + x })
		}
	}
}

// apart gives each expert matrices of its own.
func (f *form) apart() {
	f.each("experts.gate_up_proj", func(name string) {
		r, base := f.tensors[name], strings.TrimSuffix(name, "gate_up_proj")
		delete(f.tensors, name)
		for e := range r.Shape[0] {
			both := pick(r, []int{e})
			both.Shape = both.Shape[1:]
			n := both.Shape[0] / 2
			for i, which := range []string{"gate_proj", "up_proj"} {
				half := pick(both, run(i*n, n))
				half.Name = fmt.Sprintf("%s%d.%s.weight", base, e, which)
				f.tensors[half.Name] = half
			}
		}
	})
	f.each("experts.down_proj", func(name string) {
		r, base := f.tensors[name], strings.TrimSuffix(name, "down_proj")
		delete(f.tensors, name)
		for e := range r.Shape[0] {
			down := pick(r, []int{e})
			down.Shape, down.Name = down.Shape[1:], fmt.Sprintf("%s%d.down_proj.weight", base, e)
			f.tensors[down.Name] = down
		}
	})
}

// stacked puts the matrices of a layer's experts, each its own, into tensors: gate and
// up into one, or each kind into its own, as named.
func (f *form) stacked(names map[string][]string) {
	f.each("experts.0.gate_proj.weight", func(name string) {
		base, _ := strings.CutSuffix(name, "experts.0.gate_proj.weight")
		for to, parts := range names {
			whole := checkpoint.RawTensor{Name: base + to}
			for e := range f.size("num_experts") {
				rows := 0
				for _, part := range parts {
					r := f.tensors[fmt.Sprintf("%sexperts.%d.%s.weight", base, e, part)]
					whole.DType, whole.Data = r.DType, append(whole.Data, r.Data...)
					rows += r.Shape[0]
					whole.Shape = []int{e + 1, rows, r.Shape[1]}
				}
			}
			f.tensors[whole.Name] = whole
		}
		for e := range f.size("num_experts") {
			for _, part := range []string{"gate_proj", "up_proj", "down_proj"} {
				delete(f.tensors, fmt.Sprintf("%sexperts.%d.%s.weight", base, e, part))
			}
		}
	})
}

var (
	fusedExperts = map[string][]string{"experts.gate_up_proj": {"gate_proj", "up_proj"}, "experts.down_proj": {"down_proj"}}
	stackExperts = map[string][]string{"switch_mlp.gate_proj.weight": {"gate_proj"}, "switch_mlp.up_proj.weight": {"up_proj"}, "switch_mlp.down_proj.weight": {"down_proj"}}
)

// asMLX is the form of MLX's folders: whole norms, kernels turned, stacked experts, and no
// head for drafts.
func (f *form) asMLX(t *testing.T) {
	f.asMLXWithDrafts(t)
	f.withoutDrafts()
}

// asMLXWithDrafts is the form of those that keep the head, under its names.
func (f *form) asMLXWithDrafts(t *testing.T) {
	f.wholeNorms(t)
	f.each("conv1d.weight", func(name string) {
		r := f.tensors[name]
		r.Shape = []int{r.Shape[0], r.Shape[2], 1}
		f.tensors[name] = r
	})
	f.each("A_log", func(name string) { f.asFloats(t, name, func(x float64) float64 { return x }) })
	f.apart()
	f.stacked(stackExperts)
}

func (f *form) withoutDrafts() {
	maps.DeleteFunc(f.tensors, func(name string, _ checkpoint.RawTensor) bool { return strings.HasPrefix(name, "mtp.") })
}

// wrapped puts the text model into one that sees images: with the prefixes of its names
// and its head's.
func (f *form) wrapped(modelType, prefix, head string) {
	for _, name := range slices.Collect(maps.Keys(f.tensors)) {
		if rest, ok := strings.CutPrefix(name, "model."); ok {
			f.rename(name, prefix+rest)
		}
	}
	f.rename("lm_head.weight", head)
	f.config = map[string]any{"model_type": modelType, "text_config": f.config, "num_experts": f.config["num_experts"]}
}

// flatDelta parts the projections of Qwen3-Next's DeltaNets as GGUF files have them.
func (f *form) flatDelta() {
	hk, dk := f.size("linear_num_key_heads"), f.size("linear_key_head_dim")
	values := f.size("linear_num_value_heads") / hk * f.size("linear_value_head_dim")
	f.each("in_proj_qkvz.weight", func(name string) {
		r, base := f.tensors[name], strings.TrimSuffix(name, "in_proj_qkvz.weight")
		delete(f.tensors, name)
		var parts [4][]int
		for g := range hk {
			at := g * (2*dk + 2*values)
			for i, n := range []int{dk, dk, values, values} {
				parts[i] = append(parts[i], run(at, n)...)
				at += n
			}
		}
		qkv, z := pick(r, slices.Concat(parts[0], parts[1], parts[2])), pick(r, parts[3])
		qkv.Name, z.Name = base+"in_proj_qkv.weight", base+"in_proj_z.weight"
		f.tensors[qkv.Name], f.tensors[z.Name] = qkv, z
	})
}

// tiled re-orders value heads as GGUF files of Qwen3.5 have them.
func (f *form) tiled() {
	hk, hv, dv := f.size("linear_num_key_heads"), f.size("linear_num_value_heads"), f.size("linear_value_head_dim")
	keys := 2 * hk * f.size("linear_key_head_dim")
	var heads, values []int
	for p := range hv {
		j := p%hk*(hv/hk) + p/hk
		heads, values = append(heads, j), append(values, run(j*dv, dv)...)
	}
	channels := run(0, keys)
	for _, i := range values {
		channels = append(channels, keys+i)
	}
	for suffix, order := range map[string][]int{"in_proj_qkv.weight": channels, "conv1d.weight": channels, "in_proj_z.weight": values, "in_proj_b.weight": heads, "in_proj_a.weight": heads, "A_log": heads, "dt_bias": heads} {
		f.each(suffix, func(name string) { f.tensors[name] = pick(f.tensors[name], order) })
	}
	f.each("linear_attn.out_proj.weight", func(name string) { f.tensors[name] = pickColumns(f.tensors[name], values) })
}

// ggufNames are the names of a hybrid's tensors in GGUF files.
var ggufNames = strings.NewReplacer("model.layers.", "blk.", "input_layernorm", "attn_norm", "post_attention_layernorm", "post_attention_norm",
	"self_attn.q_proj", "attn_q", "self_attn.k_proj", "attn_k", "self_attn.v_proj", "attn_v", "self_attn.o_proj", "attn_output", "self_attn.q_norm", "attn_q_norm", "self_attn.k_norm", "attn_k_norm",
	"linear_attn.in_proj_qkvz", "ssm_in", "linear_attn.in_proj_qkv", "attn_qkv", "linear_attn.in_proj_z", "attn_gate", "linear_attn.in_proj_ba", "ssm_ba", "linear_attn.in_proj_b", "ssm_beta",
	"linear_attn.in_proj_a", "ssm_alpha", "linear_attn.conv1d", "ssm_conv1d", "linear_attn.A_log", "ssm_a", "linear_attn.dt_bias", "ssm_dt.bias", "linear_attn.norm", "ssm_norm", "linear_attn.out_proj", "ssm_out",
	"mlp.shared_expert_gate.", "ffn_gate_inp_shexp.", "mlp.shared_expert.gate_proj", "ffn_gate_shexp", "mlp.shared_expert.up_proj", "ffn_up_shexp", "mlp.shared_expert.down_proj", "ffn_down_shexp",
	"mlp.switch_mlp.gate_proj", "ffn_gate_exps", "mlp.switch_mlp.up_proj", "ffn_up_exps", "mlp.switch_mlp.down_proj", "ffn_down_exps", "mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight",
	"mlp.gate.", "ffn_gate_inp.", "mlp.gate_proj", "ffn_gate", "mlp.up_proj", "ffn_up", "mlp.down_proj", "ffn_down",
	"model.embed_tokens", "token_embd", "model.norm", "output_norm", "lm_head", "output")

// gguf is the form as a GGUF file of an architecture, whose arrays are in f32.
func (f *form) gguf(t *testing.T, architecture string) checkpoint.Source {
	t.Helper()
	same := func(x float64) float64 { return x }
	f.wholeNorms(t)
	f.each("linear_attn.norm.weight", func(name string) { f.asFloats(t, name, same) })
	f.each("dt_bias", func(name string) { f.asFloats(t, name, same) })
	f.each("A_log", func(name string) { f.asFloats(t, name, func(x float64) float64 { return -math.Exp(x) }) })
	f.each("conv1d.weight", func(name string) {
		f.asFloats(t, name, same)
		r := f.tensors[name]
		r.Shape = []int{r.Shape[0], r.Shape[2]}
		f.tensors[name] = r
	})
	f.each("shared_expert_gate.weight", func(name string) {
		r := f.tensors[name]
		r.Shape = r.Shape[1:]
		f.tensors[name] = r
	})
	f.each("mlp.gate.weight", func(name string) {
		r := f.tensors[name]
		rows := r.Shape
		r.Shape = []int{rows[0] * rows[1]}
		f.tensors[name] = r
		f.asFloats(t, name, same)
		r = f.tensors[name]
		r.Shape = rows
		f.tensors[name] = r
	})
	layers := f.size("num_hidden_layers")
	drafts := 0
	for from, to := range map[string]string{"mtp.fc.": "nextn.eh_proj.", "mtp.pre_fc_norm_embedding.": "nextn.enorm.", "mtp.pre_fc_norm_hidden.": "nextn.hnorm.", "mtp.norm.": "nextn.shared_head_norm."} {
		if _, ok := f.tensors[from+"weight"]; ok {
			drafts = 1
			f.rename(from+"weight", fmt.Sprintf("blk.%d.%sweight", layers, to))
		}
	}
	for _, name := range slices.Collect(maps.Keys(f.tensors)) {
		if rest, ok := strings.CutPrefix(name, "mtp.layers.0."); ok {
			f.rename(name, fmt.Sprintf("model.layers.%d.%s", layers, rest))
		}
	}
	head := f.size("head_dim")
	metadata := map[string]any{"block_count": layers + drafts, "nextn_predict_layers": drafts, "embedding_length": f.size("hidden_size"), "context_length": f.size("max_position_embeddings"),
		"attention.head_count": f.size("num_attention_heads"), "attention.head_count_kv": f.size("num_key_value_heads"), "attention.key_length": head, "attention.value_length": head,
		"rope.dimension_count": head / 4, "ssm.conv_kernel": f.size("linear_conv_kernel_dim"), "ssm.state_size": f.size("linear_key_head_dim"), "ssm.group_count": f.size("linear_num_key_heads"),
		"ssm.time_step_rank": f.size("linear_num_value_heads"), "ssm.inner_size": f.size("linear_num_value_heads") * f.size("linear_value_head_dim")}
	if f.config["num_experts"] != nil {
		maps.Copy(metadata, map[string]any{"expert_count": f.size("num_experts"), "expert_used_count": f.size("num_experts_per_tok"), "expert_feed_forward_length": f.size("moe_intermediate_size")})
	}
	if f.config["intermediate_size"] != nil {
		metadata["feed_forward_length"] = f.size("intermediate_size")
	}
	fields := []checkpoint.GGUFField{{Key: "general.architecture", Value: architecture}, {Key: architecture + ".attention.layer_norm_rms_epsilon", Value: float32(1e-6)}, {Key: architecture + ".rope.freq_base", Value: float32(10000)}}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		fields = append(fields, checkpoint.GGUFField{Key: architecture + "." + key, Value: uint32(metadata[key].(int))})
	}
	var list []checkpoint.GGUFTensor
	for _, name := range slices.Sorted(maps.Keys(f.tensors)) {
		r := f.tensors[name]
		list = append(list, checkpoint.GGUFTensor{Name: ggufNames.Replace(name), DType: map[string]backend.DType{"F32": backend.F32, "BF16": backend.BF16}[r.DType], Shape: r.Shape, Data: r.Data})
	}
	var file bytes.Buffer
	if err := checkpoint.WriteGGUF(&file, fields, list); err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.NewGGUF(file.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return c
}
