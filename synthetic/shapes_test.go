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
