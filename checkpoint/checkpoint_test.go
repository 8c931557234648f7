package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/internal/testhelp"
	"windrow/models/tinygsm"
)

const smallConfig = `{"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 8,
	"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
	"intermediate_size": 16, "vocab_size": 32}`

// safetensorsFile makes a file of F32 tensors of one element each.
func safetensorsFile(t testing.TB, names ...string) []byte {
	t.Helper()
	var tensors []RawTensor
	for i, name := range names {
		tensors = append(tensors, RawTensor{Name: name, DType: "F32", Shape: []int{1}, Data: []byte{byte(i), 0, 0, 0}})
	}
	return writeSafetensors(t, nil, tensors)
}

func writeSafetensors(t testing.TB, metadata map[string]string, tensors []RawTensor) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := WriteSafetensors(&b, metadata, tensors); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func shardedFiles(t testing.TB) map[string][]byte {
	return map[string][]byte{
		"config.json":            []byte(smallConfig),
		"generation_config.json": []byte(`{"eos_token_id": [3, 4], "temperature": 0.6}`),
		"tokenizer.json":         []byte(`{}`),
		"model.safetensors.index.json": []byte(`{"metadata": {"total_size": 12}, "weight_map": {
			"b.weight": "model-00002-of-00002.safetensors", "a.weight": "model-00001-of-00002.safetensors",
			"c.weight": "model-00002-of-00002.safetensors"}}`),
		"model-00001-of-00002.safetensors": safetensorsFile(t, "a.weight", "not.in.the.index"),
		"model-00002-of-00002.safetensors": safetensorsFile(t, "c.weight", "b.weight"),
	}
}

func TestCheckpoint(t *testing.T) {
	files := shardedFiles(t)
	fromMemory, err := New(files)
	if err != nil {
		t.Fatal(err)
	}
	dir := testhelp.Folder(t, files)
	fromFolder, err := OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*Checkpoint{fromMemory, fromFolder} {
		if got, want := fmt.Sprint(c.Names()), "[a.weight c.weight b.weight]"; got != want {
			t.Errorf("names %s, want %s", got, want)
		}
		w, ok := c.Tensor("b.weight")
		if !ok || w.DType != backend.F32 || w.Name != "b.weight" || len(w.Data) != 4 || w.Data[0] != 1 {
			t.Errorf("b.weight: %+v, %v", w, ok)
		}
		if _, ok := c.Tensor("not.in.the.index"); ok {
			t.Error("a tensor that the index does not name is there")
		}
		if g := c.Generation(); len(g.EOSTokenIDs) != 2 || *g.Temperature != 0.6 {
			t.Errorf("generation config %+v", g)
		}
		if data, ok := c.File("tokenizer.json"); !ok || string(data) != "{}" {
			t.Errorf("tokenizer.json: %q, %v", data, ok)
		}
		if _, err := c.ReadFile("tokenizer_config.json"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("missing file: %v, want fs.ErrNotExist", err)
		}
		if _, err := c.ReadFile("../" + filepath.Base(dir) + "/tokenizer.json"); err == nil {
			t.Error("a file name with .. was read")
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
	}
}

func TestCheckpointOfTinyGSM(t *testing.T) {
	if !tinygsm.Available {
		t.Skip("built without the model")
	}
	files := tinygsm.Files()
	c, err := New(files)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if len(c.Names()) != 90 {
		t.Errorf("%d tensors, want 90", len(c.Names()))
	}
	first, _ := c.Tensor("model.embed_tokens.weight")
	shard := files["model-00001-of-00002.safetensors"]
	if n := len(shard); n < len(first.Data) || &first.Data[0] != &shard[8+4120] {
		t.Error("the embedding was copied out of its shard")
	}
	if want := "wedlm, 8 layers, hidden 384, 6 heads, 2 kv heads of 64, mlp 1024, vocab 4096, tied"; c.Config().String() != want {
		t.Errorf("config %s, want %s", c.Config(), want)
	}
}

// The Hugging Face cache holds snapshots of links into a folder of blobs.
func TestFolderLinks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a privilege on Windows")
	}
	root := t.TempDir()
	blobs, snapshot, elsewhere := filepath.Join(root, "blobs"), filepath.Join(root, "snapshots", "1"), filepath.Join(root, "elsewhere")
	for _, dir := range []string{blobs, snapshot, elsewhere} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range map[string][]byte{"config.json": []byte(smallConfig), "model.safetensors": safetensorsFile(t, "a.weight")} {
		for _, dir := range []string{blobs, elsewhere} {
			if err := os.WriteFile(filepath.Join(dir, "of-"+name), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink("../../blobs/of-"+name, filepath.Join(snapshot, name)); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(root, "link")
	if err := os.Symlink(snapshot, link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{snapshot, link} {
		c, err := OpenFolder(dir)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	weights := filepath.Join(snapshot, "model.safetensors")
	if err := errors.Join(os.Remove(weights), os.Symlink("../../elsewhere/of-model.safetensors", weights)); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFolder(snapshot); err == nil || !strings.Contains(err.Error(), "link out of the model's folder") {
		t.Errorf("a link out of the folder: %v", err)
	}
}

func TestCheckpointRefuses(t *testing.T) {
	index := func(text string) map[string]string { return map[string]string{"model.safetensors.index.json": text} }
	for _, tc := range []struct {
		name   string
		set    map[string]string // "" removes
		folder bool              // only of a folder
		want   string
	}{
		{"no config", map[string]string{"config.json": ""}, false, "config.json: no such file"},
		{"a bad config", map[string]string{"config.json": "{"}, false, "config.json: not JSON"},
		{"a bad generation config", map[string]string{"generation_config.json": `{"top_p": 2}`}, false, "generation_config.json: top_p: found 2, want a number from 0 to 1"},
		{"no weights", index(""), false, "want the weights as safetensors"},
		{"an empty weights file", map[string]string{"model.safetensors": "\x00"}, false, "model.safetensors: safetensors file of 1 bytes"},
		{"a missing shard", map[string]string{"model-00002-of-00002.safetensors": ""}, false, "puts 2 tensors in it"},
		{"a missing tensor", map[string]string{"model-00002-of-00002.safetensors": string(safetensorsFile(t, "b.weight"))}, false, `no tensor "c.weight"`},
		{"a truncated shard", map[string]string{"model-00001-of-00002.safetensors": string(safetensorsFile(t, "a.weight")[:70])}, false, "(truncated file?)"},
		{"an index out of the folder", index(`{"weight_map": {"a.weight": "../model.safetensors"}}`), false, "want a plain name"},
		{"an absolute index", index(`{"weight_map": {"a.weight": "/etc/model.safetensors"}}`), false, "want a plain name"},
		{"an index of a quantised model", map[string]string{"model-00001-of-00002.safetensors": string(writeSafetensors(t, nil,
			[]RawTensor{{Name: "a.weight", DType: "U32", Shape: []int{1}, Data: make([]byte, 4)}}))}, false, "dtype U32, and config.json has no quantization"},
		{"an empty file", map[string]string{"model-00001-of-00002.safetensors": "\x00empty"}, true, "safetensors file of 0 bytes"},
	} {
		files := shardedFiles(t)
		for name, text := range tc.set {
			switch text {
			case "":
				delete(files, name)
			case "\x00empty":
				files[name] = nil
			default:
				files[name] = []byte(text)
			}
		}
		if !tc.folder {
			_, err := New(maps.Clone(files))
			testhelp.OneLine(t, tc.name+" in memory", err, tc.want)
		}
		_, err := OpenFolder(testhelp.Folder(t, files))
		testhelp.OneLine(t, tc.name+" in a folder", err, tc.want)
	}
	dir := testhelp.Folder(t, map[string][]byte{"file": nil})
	_, err := OpenFolder(filepath.Join(dir, "none"))
	testhelp.OneLine(t, "no folder", err, "no such folder")
	_, err = OpenFolder(filepath.Join(dir, "file"))
	testhelp.OneLine(t, "a file", err, "is a file: want the folder")
	if err := os.Mkdir(filepath.Join(dir, "config.json"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err = OpenFolder(dir)
	testhelp.OneLine(t, "a folder for a file", err, "want a regular file")
}
