package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"windrow/internal/testhelp"
	"windrow/quant"
)

func TestPublishedConfig(t *testing.T) {
	weights := func(w string) string {
		return `{"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": {"targets": ["Linear"], "weights": ` + w + `}}}`
	}
	for _, tc := range []struct {
		name, entry string
		want        Published
	}{
		{"awq", `{"quant_method": "awq", "bits": 4, "group_size": 128, "version": "GEMM", "zero_point": true, "modules_to_not_convert": null}`,
			Published{Method: "awq", Bits: 4, Group: 128}},
		{"gptq", `{"quant_method": "gptq", "bits": 4, "group_size": -1, "desc_act": true, "sym": true}`,
			Published{Method: "gptq", Bits: 4, Group: -1, Symmetric: true, ZeroPlus: 1, ActOrder: true}},
		{"gptq_v2", `{"quant_method": "gptq", "bits": 8, "group_size": 32, "sym": false, "checkpoint_format": "gptq_v2", "dynamic": {}}`,
			Published{Method: "gptq", Bits: 8, Group: 32}},
		{"fp8", `{"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 64]}`,
			Published{Method: "fp8", Group: -1, Symmetric: true, BlockOutputs: 128, BlockInputs: 64}},
		{"compressed", weights(`{"num_bits": 8, "type": "int", "symmetric": false, "strategy": "channel", "actorder": "group"}`),
			Published{Method: "compressed-tensors", Bits: 8, Group: -1, ActOrder: true}},
	} {
		c, err := ParseConfig(configWith(set{"quantization_config": json.RawMessage(tc.entry)}))
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
		} else if *c.Published != tc.want || c.Quantization != nil {
			t.Errorf("%s: %+v, want %+v", tc.name, *c.Published, tc.want)
		}
	}
	gptq := func(more string) string { return `{"quant_method": "gptq", "bits": 4, "group_size": 128` + more + `}` }
	awq := func(more string) string { return `{"quant_method": "awq", "bits": 4, "group_size": 128` + more + `}` }
	fp8 := func(more string) string { return `{"quant_method": "fp8"` + more + `}` }
	for _, tc := range []struct{ entry, want string }{
		{`{"quant_method": "bitsandbytes", "load_in_4bit": true}`, `quant_method: found "bitsandbytes", want awq, gptq, fp8, compressed-tensors, or MLX's affine groups: take the model in bf16, or its GGUF or MLX form`},
		{`{"load_in_8bit": true}`, `found "bitsandbytes"`},
		{`{"quant_method": "mxfp4"}`, `found "mxfp4"`},
		{`{"quant_method": "modelopt", "quant_algo": "NVFP4"}`, `found "modelopt"`},
		{`{"quant_method": "auto-round"}`, `found "auto-round"`},
		{`{"quant_method": 4}`, "quant_method: found 4, want a string"},
		{`{"quant_method": "awq"}`, "quantization_config.bits: missing"},
		{awq(`, "version": "gemv"`), `version: found "gemv", want gemm: take`},
		{awq(`, "zero_point": false`), "zero_point: found false, want true"},
		{awq(`, "modules_to_not_convert": "lm_head"`), `modules_to_not_convert: found "lm_head", want a list of strings`},
		{`{"quant_method": "awq", "bits": 8}`, "bits: found 8, want 4"},
		{`{"quant_method": "awq", "bits": "4"}`, `bits: found "4", want a whole number`},
		{`{"quant_method": "awq", "bits": 4, "group_size": 0}`, "group_size: found 0, want a multiple of 32, or -1"},
		{`{"quant_method": "awq", "bits": 4, "group_size": 48}`, "group_size: found 48, want a multiple of 32"},
		{`{"quant_method": "awq", "bits": 4, "group_size": -2}`, "group_size: found -2, want a whole number from -1"},
		{`{"quant_method": "gptq", "bits": 3, "group_size": 128}`, "bits: found 3, want 4 or 8: take"},
		{gptq(`, "checkpoint_format": "marlin"`), `checkpoint_format: found "marlin", want gptq or gptq_v2`},
		{gptq(`, "is_marlin_format": true`), "is_marlin_format: found true"},
		{gptq(`, "dynamic": {"+:.*down.*": {"bits": 8}}`), "dynamic: found {"},
		{gptq(`, "pack_dtype": "int16"`), `pack_dtype: found "int16", want int32`},
		{gptq(`, "sym": "yes"`), `sym: found "yes", want true or false`},
		{fp8(``), "weight_block_size: missing, want the outputs and the inputs"},
		{fp8(`, "weight_block_size": [128]`), "weight_block_size: found [128], want two lengths"},
		{fp8(`, "weight_block_size": [128, 0]`), "weight_block_size: found [128,0], want two lengths"},
		{fp8(`, "weight_block_size": 128`), "weight_block_size: found 128, want a list"},
		{fp8(`, "weight_block_size": [128, 128], "fmt": "e5m2"`), `fmt: found "e5m2", want e4m3`},
		{fp8(`, "weight_block_size": [128, 128], "activation_scheme": "static"`), `activation_scheme: found "static", want dynamic`},
		{`{"quant_method": "compressed-tensors"}`, "format: missing"},
		{`{"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}`, `format: found "nvfp4-pack-quantized", want pack-quantized or float-quantized`},
		{`{"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {}}`, "config_groups: found {}, want one group"},
		{`{"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"a": 1}}`, "config_groups.a: found 1, want an object"},
		{`{"quant_method": "compressed-tensors", "format": "pack-quantized", "sparsity_config": {"format": "sparse-24"}}`, `sparsity_config.format: found "sparse-24", want dense`},
		{`{"quant_method": "compressed-tensors", "format": "pack-quantized", "transform_config": {"a": {}}}`, "transform_config: found {"},
		{weights(`{"num_bits": 4, "type": "float"}`), `type: found "float", want int`},
		{weights(`{"num_bits": 4, "strategy": "tensor"}`), `strategy: found "tensor", want group or channel`},
		{weights(`{"num_bits": 4, "strategy": "group"}`), "weights.group_size: missing"},
		{weights(`{"num_bits": 4, "strategy": "group", "group_size": 0}`), "weights.group_size: found 0"},
	} {
		_, err := ParseConfig(configWith(set{"quantization_config": json.RawMessage(tc.entry)}))
		testhelp.OneLine(t, tc.entry, err, tc.want)
		if err != nil && (strings.Contains(err.Error(), "\n") || len(err.Error()) > 300) {
			t.Errorf("%s: not one line: %v", tc.entry, err)
		}
	}
}

// words makes an I32 tensor of the same word everywhere.
func words(name string, word uint32, shape ...int) RawTensor {
	x := raw(name, "I32", 0, shape...)
	for i := 0; i < len(x.Data); i += 4 {
		binary.LittleEndian.PutUint32(x.Data[i:], word)
	}
	return x
}

func indices(name string, n int, of func(i int) int32) RawTensor {
	x := raw(name, "I32", 0, n)
	for i := range n {
		binary.LittleEndian.PutUint32(x.Data[4*i:], uint32(of(i)))
	}
	return x
}

// publishedCase is a checkpoint with one module, a, of 16 outputs and 64 inputs.
type publishedCase struct {
	name    string
	entry   string
	tensors []RawTensor
}

func publishedCases() []publishedCase {
	return []publishedCase{
		{"awq", `{"quant_method": "awq", "bits": 4, "group_size": 32}`, []RawTensor{
			words("a.qweight", 0x76543210, 64, 2), words("a.qzeros", 0x89abcdef, 2, 2), raw("a.scales", "F16", 1, 2, 16)}},
		{"gptq", `{"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": true}`, []RawTensor{
			words("a.qweight", 0x76543210, 8, 16), words("a.qzeros", 0x77777777, 2, 2), raw("a.scales", "F16", 1, 2, 16),
			indices("a.g_idx", 64, func(i int) int32 { return int32(i / 32) })}},
		{"fp8", `{"quant_method": "fp8", "weight_block_size": [16, 32]}`, []RawTensor{
			raw("a.weight", "F8_E4M3", 1, 16, 64), raw("a.weight_scale_inv", "BF16", 1, 1, 2)}},
		{"compressed", `{"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"g": {"weights":
			{"num_bits": 4, "strategy": "group", "group_size": 32, "symmetric": false}}}}`, []RawTensor{
			words("a.weight_packed", 0x76543210, 16, 8), raw("a.weight_scale", "F16", 1, 16, 2), words("a.weight_zero_point", 0x12345678, 2, 2),
			{Name: "a.weight_shape", DType: "I64", Shape: []int{2}, Data: binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 16), 64)}}},
		{"compressed fp8", `{"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"g": {"weights":
			{"num_bits": 8, "type": "float", "strategy": "tensor"}}}}`, []RawTensor{
			raw("a.weight", "F8_E4M3", 1, 16, 64), raw("a.weight_scale", "F32", 1, 1)}},
	}
}

// files writes the case, changed by edit, as a checkpoint.
func (p publishedCase) files(t testing.TB, edit func(map[string]RawTensor, set)) map[string][]byte {
	t.Helper()
	tensors := map[string]RawTensor{"norm.weight": raw("norm.weight", "BF16", 1, 4)}
	for _, x := range p.tensors {
		tensors[x.Name] = x
	}
	var entry set
	if err := json.Unmarshal([]byte(p.entry), &entry); err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(tensors, entry)
	}
	var list []RawTensor
	for _, x := range tensors {
		list = append(list, x)
	}
	change := set{"quantization_config": entry}
	if entry["quant_method"] == nil {
		change = nil
	}
	return map[string][]byte{"config.json": configWith(change), "model.safetensors": writeSafetensors(t, nil, list)}
}

func TestPublishedCheckpoint(t *testing.T) {
	for _, p := range publishedCases() {
		c, err := New(p.files(t, nil))
		if err != nil {
			t.Errorf("%s: %v", p.name, err)
			continue
		}
		x, ok := c.Tensor("a.weight")
		if !ok || fmt.Sprint(x.Shape) != "[16 64]" || len(c.Names()) != 2 {
			t.Errorf("%s: %v of %v", p.name, x.Shape, c.Names())
			continue
		}
		y, err := x.Make(t.Context())
		if err != nil {
			t.Errorf("%s: %v", p.name, err)
		} else if err := y.Check(); err != nil || y.Bytes() != x.Bytes() {
			t.Errorf("%s: %d bytes, described as %d: %v", p.name, y.Bytes(), x.Bytes(), err)
		}
	}
}

// TestPublishedDigest: a byte of any part makes another digest.
func TestPublishedDigest(t *testing.T) {
	digest := func(files map[string][]byte) string {
		c, err := New(files)
		if err != nil {
			t.Fatal(err)
		}
		return c.Digest()
	}
	for _, p := range publishedCases() {
		first := digest(p.files(t, nil))
		if first != digest(p.files(t, nil)) {
			t.Errorf("%s: another digest of the same files", p.name)
		}
		for _, x := range p.tensors {
			if strings.HasSuffix(x.Name, ".g_idx") || strings.HasSuffix(x.Name, "_shape") {
				continue // which have one content
			}
			changed := digest(p.files(t, func(all map[string]RawTensor, _ set) {
				y := all[x.Name]
				y.Data = slices.Clone(y.Data)
				y.Data[len(y.Data)-1] ^= 1
				all[x.Name] = y
			}))
			if changed == first {
				t.Errorf("%s: %s changes nothing", p.name, x.Name)
			}
		}
	}
}

func TestPublishedCheckpointRefuses(t *testing.T) {
	type tensors = map[string]RawTensor
	cases := map[string]publishedCase{}
	for _, p := range publishedCases() {
		cases[p.name] = p
	}
	for _, tc := range []struct {
		of, name string
		edit     func(tensors, set)
		want     string
	}{
		{"awq", "no entry", func(_ tensors, e set) { clear(e) }, `"a.qweight" holds packed numbers, and config.json has no quantization_config`},
		{"awq", "no zeros", func(x tensors, _ set) { delete(x, "a.qzeros") }, `"a.qweight" is quantised, and "a.qzeros" is missing`},
		{"awq", "no scales", func(x tensors, _ set) { delete(x, "a.scales") }, `"a.scales" is missing`},
		{"awq", "no numbers", func(x tensors, _ set) { delete(x, "a.qweight") }, `"a.qzeros" belongs to a quantised weight, and its .qweight is missing`},
		{"awq", "words of another type", func(x tensors, _ set) { x["a.qweight"] = raw("a.qweight", "F32", 1, 64, 2) }, `"a.qweight": found F32, want I32`},
		{"awq", "zeros of another type", func(x tensors, _ set) { x["a.qzeros"] = raw("a.qzeros", "F16", 1, 2, 2) }, `"a.qzeros": found F16, want I32`},
		{"awq", "scales of another type", func(x tensors, _ set) { x["a.scales"] = raw("a.scales", "F32", 1, 2, 16) }, `"a.scales": found F32, want F16 or BF16`},
		{"awq", "one dimension", func(x tensors, _ set) { x["a.qweight"] = words("a.qweight", 1, 128) }, "shape [128], want two dimensions"},
		{"awq", "nothing", func(x tensors, _ set) { x["a.qweight"] = words("a.qweight", 1, 0, 2) }, "shape [0 2], want two dimensions from 1"},
		{"awq", "no room", func(x tensors, _ set) { x["a.qweight"] = words("a.qweight", 1, 0, 1<<40) }, "want two dimensions from 1"},
		{"awq", "zeros of fewer groups", func(x tensors, _ set) { x["a.qzeros"] = words("a.qzeros", 1, 1, 2) }, `"a.qzeros": shape [1 2], want [2 2]`},
		{"awq", "scales of other outputs", func(x tensors, _ set) { x["a.scales"] = raw("a.scales", "F16", 1, 2, 8) }, `"a.scales": shape [2 8], want [2 16]`},
		{"awq", "another group", func(_ tensors, e set) { e["group_size"] = 64 }, `"a.scales": shape [2 16], want [1 16]`},
		{"awq", "longer groups than rows", func(_ tensors, e set) { e["group_size"] = 128 }, "64 inputs in groups of 128: want whole groups"},
		{"awq", "as another method", func(_ tensors, e set) { e["quant_method"] = "gptq" }, "2 outputs, want a multiple of 8"},
		{"awq", "twice", func(x tensors, _ set) { x["a.weight"] = raw("a.weight", "F16", 1, 16, 64) }, `"a.qweight" and "a.weight": want one of them`},
		{"gptq", "inputs out of order", func(x tensors, e set) {
			e["desc_act"] = true
			x["a.g_idx"] = indices("a.g_idx", 64, func(i int) int32 { return int32(i % 2) })
		}, `"a.g_idx": input 1 is in group 1, want 0: inputs in act-order (desc_act) are not read: take the model in bf16`},
		{"gptq", "no order", func(x tensors, e set) { e["desc_act"] = true; delete(x, "a.g_idx") }, `desc_act is set, and "a.g_idx" is missing`},
		{"gptq", "a short order", func(x tensors, _ set) { x["a.g_idx"] = raw("a.g_idx", "I32", 0, 63) }, `"a.g_idx": shape [63], want [64]`},
		{"gptq", "outputs", func(x tensors, _ set) { x["a.qweight"] = words("a.qweight", 1, 8, 12) }, "12 outputs, want a multiple of 8"},
		{"gptq", "rows that are no group", func(x tensors, e set) {
			e["group_size"] = -1
			x["a.qweight"] = words("a.qweight", 1, 6, 16)
		}, "48 inputs in groups of 48: want whole groups of a multiple of 32"},
		{"gptq", "8 bits with zeros", func(x tensors, e set) {
			e["bits"], e["sym"] = 8, false
			x["a.qweight"], x["a.qzeros"] = words("a.qweight", 1, 16, 16), words("a.qzeros", 1, 2, 4)
		}, `"a.qweight": 8 bits with zero points are not read: take`},
		{"fp8", "no scales", func(x tensors, _ set) { delete(x, "a.weight_scale_inv") }, `"a.weight_scale_inv" is missing`},
		{"fp8", "no weight", func(x tensors, _ set) { delete(x, "a.weight") }, `"a.weight_scale_inv" belongs to a quantised weight, and its .weight is missing`},
		{"fp8", "a float weight", func(x tensors, _ set) { x["a.weight"] = raw("a.weight", "BF16", 1, 16, 64) }, `and its .weight is missing`},
		{"fp8", "scales of other blocks", func(_ tensors, e set) { e["weight_block_size"] = []int{16, 64} }, `"a.weight_scale_inv": shape [1 2], want [1 1]`},
		{"fp8", "whole scales", func(x tensors, _ set) { x["a.weight_scale_inv"] = raw("a.weight_scale_inv", "U8", 1, 1, 2) }, "found U8, want F32 or BF16 or F16"},
		{"fp8", "one dimension", func(x tensors, _ set) { x["a.weight"] = raw("a.weight", "F8_E4M3", 1, 1024) }, "shape [1024], want two dimensions"},
		{"fp8", "no entry", func(_ tensors, e set) { clear(e) }, "F8_E4M3: want F32, F16 or BF16"},
		{"compressed", "another shape", func(x tensors, _ set) {
			x["a.weight_shape"] = indices("a.weight_shape", 2, func(i int) int32 { return 64 })
		}, `"a.weight_shape": shape [64 64], want that of 16 × 8 words of 4 bits, [16 64]`},
		{"compressed", "no shape", func(x tensors, _ set) { delete(x, "a.weight_shape") }, `"a.weight_shape" is missing`},
		{"compressed", "no zeros", func(x tensors, _ set) { delete(x, "a.weight_zero_point") }, `"a.weight_zero_point" is missing`},
		{"compressed fp8", "too many scales", func(x tensors, _ set) { x["a.weight_scale"] = raw("a.weight_scale", "F32", 1, 2) }, `"a.weight_scale": shape [2], want [1]`},
		{"compressed fp8", "no scales", func(x tensors, _ set) { delete(x, "a.weight_scale") }, `"a.weight_scale" is missing`},
	} {
		c, err := New(cases[tc.of].files(t, tc.edit))
		if err == nil { // what only the bytes say
			x, _ := c.Tensor("a.weight")
			if x.Make != nil {
				_, err = x.Make(t.Context())
			}
		}
		testhelp.OneLine(t, tc.of+", "+tc.name, err, tc.want)
		if err != nil && (strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "model.safetensors") && !strings.Contains(err.Error(), "config.json")) {
			t.Errorf("%s, %s: %v, want one line with the file's name", tc.of, tc.name, err)
		}
	}
}

// A scale of a whole weight may have two dimensions, one or none, and bytes of
// F8_E4M3 stay where they are.
func TestPublishedFloat8Scales(t *testing.T) {
	for _, p := range publishedCases() {
		if p.name != "compressed fp8" {
			continue
		}
		for _, shape := range [][]int{{1, 1}, {1}, {}} {
			files := p.files(t, func(x map[string]RawTensor, _ set) {
				s := raw("a.weight_scale", "F32", 0, shape...)
				binary.LittleEndian.PutUint32(s.Data, 0x3e800000) // 1/4
				x["a.weight_scale"] = s
			})
			c, err := New(files)
			if err != nil {
				t.Errorf("%v: %v", shape, err)
				continue
			}
			x, _ := c.Tensor("a.weight")
			y, err := x.Make(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			row := make([]float32, 64)
			quant.Row(row, &y, 15) // the bytes 193 to 256 of those that count from 1
			if row[0] != -2.25/4 {
				t.Errorf("%v: element 0 of output 15 is %v, want %v", shape, row[0], -2.25/4)
			}
			if at := bytes.Index(files["model.safetensors"], y.Data); at < 0 || &files["model.safetensors"][at] != &y.Data[0] {
				t.Errorf("%v: the weight was copied", shape)
			}
		}
	}
}

// What only the bytes say is found while weights are converted.
func TestPublishedNumbersRefused(t *testing.T) {
	for _, tc := range []struct {
		of   string
		edit func(map[string]RawTensor, set)
		want string
	}{
		{"gptq", func(x map[string]RawTensor, _ set) { x["a.qzeros"] = words("a.qzeros", 0x77767777, 2, 2) },
			`tensor "a.qweight": output 4, group 0: zero 7, want 8: the config says that weights are symmetric`},
		{"gptq", func(x map[string]RawTensor, e set) {
			e["sym"] = false
			x["a.qzeros"] = words("a.qzeros", 0x7777777f, 2, 2)
		}, `output 0, group 0: stored zero 15, want at most 14: readers disagree whether 15+1 is 16 or 0`},
		{"compressed", func(x map[string]RawTensor, _ set) {
			s := raw("a.weight_scale", "BF16", 0, 16, 2)
			for i := 0; i < len(s.Data); i += 2 {
				binary.LittleEndian.PutUint16(s.Data[i:], 0x4780) // 65536
			}
			x["a.weight_scale"] = s
		}, `output 0, group 0: scale 65536, want one that f16 can hold`},
	} {
		for _, p := range publishedCases() {
			if p.name != tc.of {
				continue
			}
			c, err := New(p.files(t, tc.edit))
			if err != nil {
				t.Errorf("%s: %v", tc.of, err)
				continue
			}
			x, _ := c.Tensor("a.weight")
			_, err = x.Make(t.Context())
			testhelp.OneLine(t, tc.of, err, tc.want)
		}
	}
}

// A file that is cut anywhere is refused, with no weight of it read.
func TestPublishedTruncated(t *testing.T) {
	for _, p := range publishedCases() {
		files := p.files(t, nil)
		whole := files["model.safetensors"]
		for n := range whole {
			cut := maps.Clone(files)
			cut["model.safetensors"] = whole[:n]
			if _, err := New(cut); err == nil {
				t.Fatalf("%s: %d of %d bytes were taken", p.name, n, len(whole))
			}
		}
	}
}
