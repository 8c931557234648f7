package model_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/cpu"
	"windrow/model"
	"windrow/tokenizer"
)

// What llama.cpp wrote and computed: see testdata/llama.cpp/README.md.
const llamaFolder = "testdata/llama.cpp"

type llamaReference struct {
	Texts []struct {
		Text string
		IDs  []int32
	}
	Files map[string]map[string]struct{ Type, SHA256 string }
}

func readLlamaReference(t *testing.T) (r llamaReference) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(llamaFolder, "reference.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Files) != 5 || len(r.Texts) < 5 {
		t.Fatalf("%d files and %d texts", len(r.Files), len(r.Texts))
	}
	return r
}

func openLlama(t *testing.T, name string) *checkpoint.Checkpoint {
	t.Helper()
	c, err := checkpoint.Open(filepath.Join(llamaFolder, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Every weight that ggml widens comes out the same, bit for bit.
func TestLlamaWeights(t *testing.T) {
	seen := map[string]bool{}
	for file, tensors := range readLlamaReference(t).Files {
		c := openLlama(t, file)
		wide := widen(c)
		names := map[string]string{}
		for _, name := range c.Names() {
			names[ggufName(t, name)] = name
		}
		if len(names) != len(tensors) {
			t.Errorf("%s: %d tensors, want %d", file, len(names), len(tensors))
		}
		for name, want := range tensors {
			seen[strings.ToLower(want.Type)] = true
			raw, _ := c.Tensor(names[name])
			if raw.DType.String() != strings.ToLower(want.Type) {
				t.Errorf("%s %s: read as %v, want %s", file, name, raw.DType, want.Type)
			}
			x, _ := wide.Tensor(names[name])
			if sum := sha256.Sum256(x.Data); hex.EncodeToString(sum[:]) != want.SHA256 {
				t.Errorf("%s %s (%s): weights differ from ggml's", file, name, want.Type)
			}
		}
	}
	if len(seen) != 15 {
		t.Errorf("%d types of tensors, want all 15 that are read", len(seen))
	}
}

// Writing what was read gives the file back.
func TestLlamaFilesWriteBack(t *testing.T) {
	for file := range readLlamaReference(t).Files {
		data, err := os.ReadFile(filepath.Join(llamaFolder, file))
		if err != nil {
			t.Fatal(err)
		}
		g, err := checkpoint.ReadGGUF(data)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		var b bytes.Buffer
		if err := checkpoint.WriteGGUF(&b, g.Metadata, g.Tensors); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if !bytes.Equal(b.Bytes(), data) {
			t.Errorf("%s: %d bytes written differ from the %d read", file, b.Len(), len(data))
		}
	}
}

// In f32 only the order of additions differs (6e-7 measured). The default
// arithmetic rounds activations to 8 bits (2e-2), as llama.cpp's does (2e-2 and
// 3e-2 on these files).
func TestLlamaLogits(t *testing.T) {
	for file := range readLlamaReference(t).Files {
		data, err := os.ReadFile(filepath.Join(llamaFolder, strings.TrimSuffix(file, ".gguf")+".golden.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		golden, err := checkpoint.ReadSafetensors(data)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range []struct {
			exact     bool
			tolerance float64
		}{{true, 1e-5}, {false, 5e-2}} {
			b, err := cpu.New(cpu.Options{Threads: 2, Exact: o.exact})
			if err != nil {
				t.Fatal(err)
			}
			m, err := model.Load(b, openLlama(t, file))
			if err != nil {
				t.Fatal(err)
			}
			deviations, err := m.Validate(t.Context(), golden, model.ValidateOptions{KV: backend.KVF32})
			if err != nil {
				t.Fatal(err)
			}
			if len(deviations) != 1 {
				t.Fatalf("%s: %d entries, want the prompt's logits", file, len(deviations))
			}
			d := deviations[0]
			if math.IsNaN(d.RelativeNorm) || d.RelativeNorm > o.tolerance {
				t.Errorf("%s, exact %v: logits %.2g from llama.cpp's, want at most %g", file, o.exact, d.RelativeNorm, o.tolerance)
			}
			b.Close()
		}
	}
}

func TestLlamaTokens(t *testing.T) {
	c := openLlama(t, "mixed.gguf")
	vocabulary, err := c.ReadFile("tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	config, err := c.ReadFile("tokenizer_config.json")
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := tokenizer.New(vocabulary, config)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range readLlamaReference(t).Texts {
		ids, err := tokens.Encode(want.Text)
		if err != nil || !slices.Equal(ids, want.IDs) {
			t.Errorf("%q: ids %v and error %v, want %v", want.Text, ids, err, want.IDs)
		}
	}
	// The file names <|im_end|> alone; llama.cpp stops at <|endoftext|>, too.
	if stop := c.Config().EOSTokenIDs; !slices.Equal(stop, []int32{287, 285}) || !slices.Equal(c.Generation().EOSTokenIDs, stop) {
		t.Errorf("stops at %v and %v, want 287 and 285", stop, c.Generation().EOSTokenIDs)
	}
}
