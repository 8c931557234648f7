package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/internal/testhelp"
)

func TestQuantizationConfig(t *testing.T) {
	four, eight := AffineFormat{Bits: 4, Group: 64}, AffineFormat{Bits: 8, Group: 32}
	for _, tc := range []struct {
		name, text string
		want       *Quantization
	}{
		{"none", `{}`, nil},
		{"plain", `{"quantization": {"group_size": 64, "bits": 4}}`, &Quantization{AffineFormat: four, Layers: map[string]*AffineFormat{}}},
		{"its alias", `{"quantization_config": {"group_size": 64, "bits": 4, "mode": "affine"}}`, &Quantization{AffineFormat: four, Layers: map[string]*AffineFormat{}}},
		{"layers", `{"quantization": {"group_size": 64, "bits": 4, "lm_head": false, "model.layers.0.mlp.up_proj": true,
			"model.layers.0.mlp.down_proj": {"group_size": 32, "bits": 8}, "model.layers.1.mlp.down_proj": {"bits": 8}}}`,
			&Quantization{AffineFormat: four, Layers: map[string]*AffineFormat{"lm_head": nil, "model.layers.0.mlp.down_proj": &eight, "model.layers.1.mlp.down_proj": {Bits: 8, Group: 64}}}},
	} {
		var change set
		if err := json.Unmarshal([]byte(tc.text), &change); err != nil {
			t.Fatal(err)
		}
		c, err := ParseConfig(configWith(change))
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
		} else if !reflect.DeepEqual(c.Quantization, tc.want) {
			t.Errorf("%s: %+v, want %+v", tc.name, c.Quantization, tc.want)
		}
	}
	for _, tc := range []struct{ text, want string }{
		{`{"quantization": 4}`, "quantization: found 4, want an object"},
		{`{"quantization": {"bits": 4}}`, "quantization.group_size: missing"},
		{`{"quantization": {"group_size": 64}}`, "quantization.bits: missing"},
		{`{"quantization": {"group_size": 64, "bits": 3}}`, "quantization.bits: found 3, want 4 or 8"},
		{`{"quantization": {"group_size": 48, "bits": 4}}`, "quantization.group_size: found 48, want 32, 64 or 128"},
		{`{"quantization": {"group_size": 32, "bits": 4, "mode": "mxfp4"}}`, `quantization.mode: found "mxfp4", want affine`},
		{`{"quantization_config": {"quant_method": "hqq", "bits": 4, "group_size": 128}}`, `quantization_config.quant_method: found "hqq", want awq, gptq`},
		{`{"quantization": {"group_size": 64, "bits": 4, "model.layers.0.mlp.up_proj": {"bits": 2}}}`, "quantization.model.layers.0.mlp.up_proj: bits: found 2"},
		{`{"quantization": {"group_size": 64, "bits": 4, "model.layers.0.mlp.up_proj": 7}}`, "model.layers.0.mlp.up_proj: found 7, want false"},
		{`{"quantization": {"group_size": 64, "bits": 4, "lm_head": 7}}`, "lm_head: found 7, want false"},
	} {
		var change set
		if err := json.Unmarshal([]byte(tc.text), &change); err != nil {
			t.Fatal(err)
		}
		_, err := ParseConfig(configWith(change))
		testhelp.OneLine(t, tc.text, err, tc.want)
	}
}

// raw makes a tensor whose bytes count up from first.
func raw(name, dtype string, first int, shape ...int) RawTensor {
	size, err := tensorBytes(dtype, shape)
	if err != nil {
		panic(err)
	}
	x := RawTensor{Name: name, DType: dtype, Shape: shape, Data: make([]byte, size)}
	for i := range x.Data {
		x.Data[i] = byte(first + i)
	}
	return x
}

// affineFiles is a model of two shards in which a.weight has its scales in the
// other one, b.weight has 8 bits, and c.weight none.
func affineFiles(t testing.TB, edit func(tensors map[string]RawTensor, config map[string]any)) map[string][]byte {
	t.Helper()
	tensors := map[string]RawTensor{}
	for _, x := range []RawTensor{
		raw("a.weight", "U32", 1, 3, 8), raw("a.scales", "BF16", 2, 3, 1), raw("a.biases", "BF16", 3, 3, 1),
		raw("b.weight", "U32", 4, 2, 16), raw("b.scales", "BF16", 5, 2, 2), raw("b.biases", "BF16", 6, 2, 2),
		raw("c.weight", "BF16", 7, 5),
	} {
		tensors[x.Name] = x
	}
	var config map[string]any
	if err := json.Unmarshal([]byte(smallConfig), &config); err != nil {
		t.Fatal(err)
	}
	config["quantization"] = set{"group_size": 64, "bits": 4, "b": set{"group_size": 32, "bits": 8}}
	if edit != nil {
		edit(tensors, config)
	}
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"config.json": text}
	index := map[string]string{}
	var first, second []RawTensor
	for _, name := range []string{"a.weight", "b.weight", "b.scales", "b.biases"} {
		if x, ok := tensors[name]; ok {
			first, index[name] = append(first, x), "1.safetensors"
		}
	}
	for _, name := range []string{"a.scales", "a.biases", "c.weight"} {
		if x, ok := tensors[name]; ok {
			second, index[name] = append(second, x), "2.safetensors"
		}
	}
	files["1.safetensors"], files["2.safetensors"] = writeSafetensors(t, nil, first), writeSafetensors(t, nil, second)
	if files["model.safetensors.index.json"], err = json.Marshal(set{"weight_map": index}); err != nil {
		t.Fatal(err)
	}
	return files
}

func TestAffineCheckpoint(t *testing.T) {
	files := affineFiles(t, nil)
	c, err := New(files)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, want := fmt.Sprint(c.Names()), "[a.weight b.weight c.weight]"; got != want {
		t.Errorf("names %s, want %s", got, want)
	}
	a, _ := c.Tensor("a.weight")
	b, _ := c.Tensor("b.weight")
	if a.DType != backend.Affine4 || fmt.Sprint(a.Shape) != "[3 64]" || a.Group != 64 || a.Data[0] != 1 || a.Scales[0] != 2 || a.Biases[0] != 3 {
		t.Errorf("a.weight: %v", a)
	}
	if b.DType != backend.Affine8 || fmt.Sprint(b.Shape) != "[2 64]" || b.Group != 32 || b.Data[0] != 4 || b.Scales[0] != 5 || b.Biases[0] != 6 {
		t.Errorf("b.weight: %v", b)
	}
	if _, ok := c.Tensor("a.scales"); ok {
		t.Error("a.scales is there as a weight of its own")
	}
	if at := bytes.Index(files["1.safetensors"], a.Data); at < 0 || &files["1.safetensors"][at] != &a.Data[0] {
		t.Error("a.weight was copied out of its shard")
	}
	in := Inspect(c)
	if in.Parameters != 3*64+2*64+5 || in.Bytes != 96+12+128+16+10 || fmt.Sprint(in.DTypes) != "[{affine8 g32 1 128 144} {affine4 g64 1 192 108} {bf16 1 5 10}]" {
		t.Errorf("inspection %+v", in)
	}
}

func TestAffineCheckpointRefuses(t *testing.T) {
	type tensors = map[string]RawTensor
	for _, tc := range []struct {
		name string
		edit func(tensors, map[string]any)
		want string
	}{
		{"no entry", func(_ tensors, c map[string]any) { delete(c, "quantization") }, "config.json has no quantization"},
		{"left out", func(_ tensors, c map[string]any) { c["quantization"].(set)["b"] = false }, `"b.weight" has dtype U32, and the quantization of config.json leaves it out`},
		{"no scales", func(x tensors, _ map[string]any) { delete(x, "a.scales") }, `"a.weight" is packed, and a.scales is missing`},
		{"no biases", func(x tensors, _ map[string]any) { delete(x, "b.biases") }, `b.biases is missing`},
		{"f16 scales", func(x tensors, _ map[string]any) { x["a.scales"] = raw("a.scales", "F16", 1, 3, 1) }, `"a.scales": found f16, want bf16`},
		{"another width", func(_ tensors, c map[string]any) { c["quantization"].(set)["bits"] = 8 }, `"a.scales": shape [3 1], want [3, 32/64] for 8 words a row of 8 bits in groups of 64`},
		{"another group", func(_ tensors, c map[string]any) { c["quantization"].(set)["group_size"] = 32 }, `"a.scales": shape [3 1], want [3, 64/32]`},
		{"rows differ", func(x tensors, _ map[string]any) { x["a.scales"] = raw("a.scales", "BF16", 1, 4, 1) }, `"a.scales": shape [4 1], want [3, 64/64]`},
		{"one dimension", func(x tensors, _ map[string]any) { x["a.weight"] = raw("a.weight", "U32", 1, 24) }, `"a.weight": shape [24], want [out, words]`},
		{"no rows", func(x tensors, _ map[string]any) {
			for _, s := range []string{"weight", "scales", "biases"} {
				y := x["a."+s]
				x["a."+s] = raw(y.Name, y.DType, 0, 0, y.Shape[1])
			}
		}, "want positive dimensions"},
	} {
		files := affineFiles(t, tc.edit)
		_, err := New(maps.Clone(files))
		testhelp.OneLine(t, tc.name, err, tc.want)
		if err != nil && !strings.Contains(err.Error(), "1.safetensors") {
			t.Errorf("%s: %v, want the file's name", tc.name, err)
		}
	}
}
