package synthetic

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/models/tinygsm"
	"windrow/quant"
)

// The parameter counts are those of the published checkpoints.
func TestShapeConfig(t *testing.T) {
	parameters := map[string]int{
		"qwen3-0.6b": 596049920, "qwen3-1.7b": 1720574976, "qwen3-4b": 4022468096,
		"qwen3-8b": 8190735360, "wedlm-8b": 8190735360, "tiny-gsm": 14163328,
		"qwen3-next-80b-a3b": 79674391296, "qwen3.5-35b-a3b": 34660610688, "qwen3.5-122b-a10b": 122111526912, "qwen3.5-397b-a17b": 396346350336, "qwen3.5-27b": 26895998464,
		"qwen3.5-9b": 8953803264, "qwen3.5-4b": 4205751296, "qwen3.5-2b": 1881825088, "qwen3.5-0.8b": 752393024,
		"qwen3-30b-a3b": 30532122624, "qwen3-235b-a22b": 235093634560, "qwen3-coder-480b-a35b": 480154875392,
	}
	if len(ShapeNames()) != len(parameters) {
		t.Errorf("shapes %v", ShapeNames())
	}
	for name, want := range parameters {
		c, ok := ShapeConfig(name)
		if !ok {
			t.Errorf("%s: unknown", name)
			continue
		}
		got := 0
		for _, w := range weightsOf(c) {
			got += elements(w)
		}
		if got != want {
			t.Errorf("%s: %d parameters, want %d", name, got, want)
		}
	}
	if _, ok := ShapeConfig("qwen3-9b"); ok {
		t.Error("qwen3-9b is known")
	}
	c, _ := ShapeConfig("qwen3-8b")
	c.EOSTokenIDs[0] = 0
	if again, _ := ShapeConfig("qwen3-8b"); again.EOSTokenIDs[0] != 151645 {
		t.Error("changing a shape's config changed the shape")
	}
}

// What a hybrid keeps of a sequence, and what its weights and a token's take, is what
// is published of it, to the digits that are.
func TestHybridShapes(t *testing.T) {
	for name, want := range map[string]struct {
		parameters, active float64 // in billions
		state              float64 // in MiB
		row                float64 // in MB: what the rings keep of a row that is not folded in yet
		kv                 int64   // in bytes of bf16, a token
	}{
		"qwen3-30b-a3b":         {30.5, 3.04, 0, 0, 98304},
		"qwen3-235b-a22b":       {235.1, 21.6, 0, 0, 192512},
		"qwen3-coder-480b-a35b": {480.2, 34.5, 0, 0, 253952},
		"qwen3-next-80b-a3b":    {79.7, 3.56, 75.4, 2.07, 24576},
		"qwen3.5-35b-a3b":       {34.7, 2.95, 62.8, 1.72, 20480},
		"qwen3.5-122b-a10b":     {122.1, 9.0, 149.1, 3.25, 24576},
		"qwen3.5-397b-a17b":     {396.3, 16.3, 186.3, 4.07, 30720},
		"qwen3.5-27b":           {26.9, 25.6, 149.6, 3.55, 65536},
		"qwen3.5-9b":            {8.95, 7.9, 50.2, 1.38, 32768},
		"qwen3.5-4b":            {4.20, 4.2, 50.2, 1.38, 32768},
		"qwen3.5-2b":            {1.88, 1.9, 19.3, 0.74, 12288},
		"qwen3.5-0.8b":          {0.75, 0.75, 19.3, 0.74, 12288},
	} {
		c, ok := ShapeConfig(name)
		if !ok {
			t.Errorf("%s: unknown", name)
			continue
		}
		near := func(what string, got, want, tolerance float64) {
			if math.Abs(got-want) > tolerance*want {
				t.Errorf("%s: %s %.4g, want %.4g", name, what, got, want)
			}
		}
		src := EmptySource(c, backend.BF16)
		near("parameters", float64(checkpoint.Inspect(src).Parameters)/1e9, want.parameters, 0.005)
		near("parameters that a token reads", float64(checkpoint.ReadBytes(src))/2e9, want.active, 0.02)
		near("MiB of state", float64(c.StateBytes())/(1<<20), want.state, 0.005)
		row := int64(0)
		if d := c.Delta; d != nil {
			s := backend.StateShape{KeyHeads: d.KeyHeads, ValueHeads: d.ValueHeads, KeyDim: d.KeyDim, ValueDim: d.ValueDim, Conv: d.Conv}
			row = int64(c.RecurrentLayers()) * (s.Bytes(17) - s.Bytes(16))
		}
		near("MB of rings a row", float64(row)/1e6, want.row, 0.005)
		if got := c.KVBytesPerToken(backend.KVBF16); got != want.kv {
			t.Errorf("%s: %d bytes of keys and values a token, want %d", name, got, want.kv)
		}
	}
}

func TestRandomSource(t *testing.T) {
	c := &checkpoint.Config{Architecture: "qwen2", HiddenSize: 256, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 64, IntermediateSize: 512, VocabSize: 6000}
	for _, dt := range []backend.DType{backend.F32, backend.F16, backend.BF16} {
		s := RandomSource(c, dt, 7)
		if !slices.Contains(s.Names(), "model.layers.1.self_attn.v_proj.bias") || !slices.Contains(s.Names(), "lm_head.weight") {
			t.Fatalf("names %v", s.Names())
		}
		for _, name := range s.Names() {
			w, ok := s.Tensor(name)
			elements := 1
			for _, d := range w.Shape {
				elements *= d
			}
			if !ok || w.Name != name || w.DType != dt || len(w.Data) != elements*dt.Size() {
				t.Fatalf("%s: %s %v of %d bytes", name, w.DType, w.Shape, len(w.Data))
			}
			if uintptr(unsafe.Pointer(&w.Data[0]))%uintptr(os.Getpagesize()) != 0 {
				t.Errorf("%s: not at a page border", name)
			}
		}
		norm, _ := s.Tensor("model.layers.1.post_attention_layernorm.weight")
		for i, x := range decodeValues(norm) {
			if x != 1 {
				t.Fatalf("%s norm weight %d is %g, want 1", dt, i, x)
			}
		}
		// The embedding is longer than the block of random values.
		embed, _ := s.Tensor("model.embed_tokens.weight")
		values := decodeValues(embed)
		sum, squares := 0.0, 0.0
		for _, x := range values {
			sum += x
			squares += x * x
		}
		n := float64(len(values))
		if mean, deviation := sum/n, math.Sqrt(squares/n); math.Abs(mean) > 1e-4 || math.Abs(deviation-0.02) > 1e-4 {
			t.Errorf("%s: mean %g, standard deviation %g, want 0 and 0.02", dt, mean, deviation)
		}
		same := RandomSource(c, dt, 7)
		other := RandomSource(c, dt, 8)
		sameEmbed, _ := same.Tensor("model.embed_tokens.weight")
		otherEmbed, _ := other.Tensor("model.embed_tokens.weight")
		if !slices.Equal(sameEmbed.Data, embed.Data) || slices.Equal(otherEmbed.Data, embed.Data) {
			t.Errorf("%s: want the seed to decide the values", dt)
		}
		head, _ := s.Tensor("lm_head.weight")
		if slices.Equal(head.Data, embed.Data) {
			t.Errorf("%s: head and embedding are equal", dt)
		}
	}
}

// Of random weights only an untied embedding of a mixture has another deviation: twice what
// attention of all layers may add, 0.02² · √(hidden · width of heads · layers).
func TestRandomEmbedding(t *testing.T) {
	for _, tied := range []bool{false, true} {
		c := &checkpoint.Config{Architecture: "qwen3_moe", HiddenSize: 1024, Layers: 4, Heads: 4, KVHeads: 2, HeadDim: 64, VocabSize: 6000, TieEmbeddings: tied,
			Experts: &checkpoint.Experts{Count: 4, PerToken: 2, InnerSize: 64, Step: 1}}
		s := RandomSource(c, backend.BF16, 7)
		for _, name := range s.Names() {
			w, _ := s.Tensor(name)
			squares, values, want := 0.0, decodeValues(w), 0.02
			for _, x := range values {
				squares += x * x
			}
			switch {
			case strings.HasSuffix(name, "norm.weight"):
				want = 1
			case name == "model.embed_tokens.weight" && !tied:
				want = 2 * 0.02 * 0.02 * 32 * 16 * 2
			}
			if got := math.Sqrt(squares / float64(len(values))); math.Abs(got-want) > 0.05*want {
				t.Errorf("tied %v: %s has deviation %.4f, want %.4f", tied, name, got, want)
			}
		}
	}
}

func decodeValues(t backend.Tensor) []float64 {
	values := make([]float64, len(t.Data)/t.DType.Size())
	for i := range values {
		switch t.DType {
		case backend.F32:
			values[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:])))
		case backend.BF16:
			values[i] = float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(t.Data[2*i:])) << 16))
		case backend.F16:
			h := binary.LittleEndian.Uint16(t.Data[2*i:])
			if exponent := int(h >> 10 & 31); exponent != 0 {
				values[i] = math.Ldexp(1+float64(h&1023)/1024, exponent-15)
			}
			if h>>15 != 0 {
				values[i] = -values[i]
			}
		}
	}
	return values
}

// Quantised random weights are valid tensors, with the selective policy's kept
// ones in bf16, and every decoded weight is of a usual size.
func TestRandomSourceQuantised(t *testing.T) {
	c := &checkpoint.Config{Architecture: "qwen3", HiddenSize: 256, Layers: 1, Heads: 4, KVHeads: 2, HeadDim: 64, IntermediateSize: 512, VocabSize: 64}
	for dt := backend.Affine4; dt <= backend.Q6_K; dt++ {
		src := RandomSource(c, dt, 1)
		for _, name := range src.Names() {
			x, _ := src.Tensor(name)
			if err := x.Check(); err != nil {
				t.Errorf("%v: %v", dt, err)
				continue
			}
			if projection := strings.HasSuffix(name, "proj.weight"); projection != (x.DType == dt) || (!projection && x.DType != backend.BF16) {
				t.Errorf("%v: %s is %v", dt, name, x.DType)
			}
			if x.DType != dt {
				continue
			}
			row := make([]float32, x.Shape[1])
			quant.Row(row, &x, x.Shape[0]-1)
			var sum float64
			for _, v := range row {
				sum += float64(v) * float64(v)
			}
			if rms := math.Sqrt(sum / float64(len(row))); !(rms > 0.01 && rms < 0.04) {
				t.Errorf("%v: %s has rms %v, want about 0.02", dt, name, rms)
			}
		}
	}
}

func TestRandomSourceOfPublishedSize(t *testing.T) {
	if os.Getenv("WINDROW_SLOW") != "1" {
		t.Skip("makes 3.4 GB: set WINDROW_SLOW=1")
	}
	c, _ := ShapeConfig("qwen3-1.7b")
	start := time.Now()
	RandomSource(c, backend.BF16, 1)
	t.Logf("qwen3-1.7b in bf16 took %v", time.Since(start))
}

// The built-in shape of tiny-gsm is that of the model.
func TestTinyShape(t *testing.T) {
	if !tinygsm.Available {
		t.Skip("built without the embedded model")
	}
	c, err := checkpoint.New(tinygsm.Files())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	shape, _ := ShapeConfig("tiny-gsm")
	if got, want := fmt.Sprintf("%+v", *c.Config()), fmt.Sprintf("%+v", *shape); got != want {
		t.Errorf("config.json gives\n%s, the built-in shape is\n%s", got, want)
	}
	random := RandomSource(shape, backend.BF16, 1)
	for _, name := range random.Names() {
		want, _ := random.Tensor(name)
		got, ok := c.Tensor(name)
		if !ok || fmt.Sprint(got.Shape) != fmt.Sprint(want.Shape) {
			t.Errorf("%s: random shape %v, the model's %v", name, want.Shape, got.Shape)
		}
	}
}
