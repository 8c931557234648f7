package checkpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/internal/testhelp"
)

func writeGGUF(t testing.TB, metadata []GGUFField, tensors []GGUFTensor) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := WriteGGUF(&b, metadata, tensors); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func allKinds() []GGUFField {
	return []GGUFField{
		{"u8", uint8(200)}, {"i8", int8(-3)}, {"u16", uint16(60000)}, {"i16", int16(-300)}, {"u32", uint32(1 << 31)}, {"i32", int32(-1 << 31)},
		{"f32", float32(1.5)}, {"yes", true}, {"no", false}, {"text", "<é>"}, {"empty", ""}, {"u64", uint64(1 << 63)}, {"i64", int64(-1 << 63)}, {"f64", math.Pi},
		{"u8s", []uint8{1, 2}}, {"i8s", []int8{-1}}, {"u16s", []uint16{3}}, {"i16s", []int16{-4}}, {"u32s", []uint32{5, 6}}, {"i32s", []int32{-7}},
		{"f32s", []float32{0.5}}, {"bools", []bool{true, false}}, {"texts", []string{"a", "", "b c"}}, {"u64s", []uint64{8}}, {"i64s", []int64{}}, {"f64s", []float64{0.25}},
	}
}

func allTypes() []GGUFTensor {
	var list []GGUFTensor
	for _, d := range backend.DTypes() {
		if d.Affine() || d == backend.F8_E4M3 { // types of safetensors alone
			continue
		}
		x := GGUFTensor{Name: d.String(), DType: d, Shape: []int{3, 256}, Data: make([]byte, 3*d.RowBytes(256))}
		for i := range x.Data {
			x.Data[i] = byte(i * int(d))
		}
		list = append(list, x)
	}
	return append(list, GGUFTensor{"vector", backend.F32, []int{1}, []byte("abcd")}, GGUFTensor{"cube", backend.F16, []int{1, 2, 3}, []byte("abcdefghijkl")})
}

func TestGGUFRoundTrip(t *testing.T) {
	data := writeGGUF(t, allKinds(), allTypes())
	g, err := ReadGGUF(data)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(g.Metadata, allKinds()) || !reflect.DeepEqual(g.Tensors, allTypes()) || g.Version != 3 {
		t.Errorf("read back %+v %v", g.Metadata, g.Tensors)
	}
	if !bytes.Equal(writeGGUF(t, g.Metadata, g.Tensors), data) {
		t.Error("writing what was read gives other bytes")
	}
	if v, ok := g.Value("f64"); !ok || v != math.Pi {
		t.Errorf("f64: %v, %v", v, ok)
	}
	binary.LittleEndian.PutUint32(data[4:], 2)
	if g, err = ReadGGUF(data); err != nil || g.Version != 2 || len(g.Tensors) != 17 {
		t.Errorf("version 2: %v", err)
	}
	for _, n := range []int{0, 3, 10, 30, 300, len(data) / 2, len(data) - 40} {
		if _, err := ReadGGUF(data[:n]); err == nil {
			t.Errorf("%d bytes of %d: no error", n, len(data))
		}
	}
}

// The layout by hand: what a writer of our own would get wrong twice.
func TestGGUFLayout(t *testing.T) {
	u32 := func(n uint32) string { return string(binary.LittleEndian.AppendUint32(nil, n)) }
	u64 := func(n uint64) string { return string(binary.LittleEndian.AppendUint64(nil, n)) }
	text := func(s string) string { return u64(uint64(len(s))) + s }
	file := "GGUF" + u32(3) + u64(2) + u64(2) +
		text("general.alignment") + u32(4) + u32(64) +
		text("list") + u32(9) + u32(8) + u64(2) + text("x") + text("yz") +
		text("m") + u32(2) + u64(3) + u64(2) + u32(0) + u64(64) + // ne0 = 3 is the length of a row
		text("v") + u32(1) + u64(32) + u32(8) + u64(0)
	file += strings.Repeat("\x00", (64-len(file)%64)%64)
	file += strings.Repeat("q", 34) + strings.Repeat("\x00", 30) + "abcdefghijklmnopqrstuvwx"
	g, err := ReadGGUF([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	want := []GGUFTensor{{"m", backend.F32, []int{2, 3}, []byte("abcdefghijklmnopqrstuvwx")}, {"v", backend.Q8_0, []int{32}, []byte(strings.Repeat("q", 34))}}
	if !reflect.DeepEqual(g.Tensors, want) || !reflect.DeepEqual(g.Metadata[1].Value, []string{"x", "yz"}) {
		t.Errorf("%+v", g)
	}
}

func TestReadGGUFRefuses(t *testing.T) {
	u32 := func(n uint32) string { return string(binary.LittleEndian.AppendUint32(nil, n)) }
	u64 := func(n uint64) string { return string(binary.LittleEndian.AppendUint64(nil, n)) }
	text := func(s string) string { return u64(uint64(len(s))) + s }
	header := func(version uint32, tensors, keys uint64) string {
		return "GGUF" + u32(version) + u64(tensors) + u64(keys)
	}
	key := func(rest string) string { return header(3, 0, 1) + text("k") + rest }
	tensor := func(rank uint32, rest string) string { return header(3, 1, 0) + text("t") + u32(rank) + rest }
	padding := strings.Repeat("\x00", 64)
	for _, tc := range []struct{ name, file, want string }{
		{"empty", "", `starts with "": want "GGUF"`},
		{"safetensors", "\x10\x00\x00\x00\x00\x00\x00\x00{}", `want "GGUF"`},
		{"no version", "GGUF", "ends early"},
		{"version 1", header(1, 0, 0), "gguf version 1: want 2 or 3"},
		{"big-endian", header(3<<24, 0, 0), "version 3: a big-endian file"},
		{"many keys", header(3, 0, 1<<40), "1099511627776 metadata keys: want at most"},
		{"keys that are not there", header(3, 0, 100), "100 metadata keys: only 0 bytes follow"},
		{"tensors that are not there", header(3, 100, 0), "100 tensors: only 8 bytes follow"},
		{"a long key", header(3, 0, 1) + u64(1<<30) + padding, "bytes of text: want at most"},
		{"a value type", key(u32(13) + padding), "value of type 13"},
		{"a list in a list", key(u32(9) + u32(9) + u64(1) + padding), "array of type 9: want a list of numbers or strings"},
		{"a list that is not there", key(u32(9) + u32(8) + u64(1<<60) + padding), "elements: only 64 bytes follow"},
		{"maybe", key(u32(7) + "\x02"), "truth value 2"},
		{"a key twice", header(3, 0, 2) + strings.Repeat(text("k")+u32(0)+"\x01", 2) + padding, `"k" stands twice`},
		{"alignment", header(3, 0, 1) + text("general.alignment") + u32(4) + u32(48), "general.alignment: found 48"},
		{"no dimensions", tensor(0, padding), "0 dimensions: want 1 to 4"},
		{"five dimensions", tensor(5, padding), "5 dimensions"},
		{"a dimension of 0", tensor(1, u64(0)+padding), "dimension 0 is 0"},
		{"a huge tensor", tensor(2, u64(1<<40)+u64(1<<40)+padding), "dimension 1 is 1099511627776"},
		{"IQ3_S", tensor(1, u64(256)+u32(21)+u64(0)+padding), "type IQ3_S: want F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL or IQ4_XS: take a file such as Q3_K_M"},
		{"a row of half a block", tensor(1, u64(128)+u32(13)+u64(0)+padding), "rows of 128: want a multiple of 256 for q5_k"},
		{"a row that is cut", tensor(1, u64(256)+u32(13)+u64(0)+padding), "176 bytes at offset 0 of"},
		{"an unknown type", tensor(1, u64(256)+u32(99)+u64(0)+padding), "type 99: want"},
		{"half a block", tensor(1, u64(48)+u32(8)+u64(0)+padding), "rows of 48: want a multiple of 32 for q8_0"},
		{"an odd offset", tensor(1, u64(1)+u32(0)+u64(8)+padding), "offset 8, want a multiple of the alignment 32"},
		{"past the end", tensor(1, u64(8)+u32(0)+u64(64)+padding), "32 bytes at offset 64 of"},
		{"no data", tensor(1, u64(8)+u32(0)+u64(0)), "(truncated file?)"},
		{"an offset that wraps", tensor(1, u64(8)+u32(0)+u64(math.MaxUint64-31)+padding), "at offset 18446744073709551584"},
		{"overlap", header(3, 2, 0) + text("a") + u32(1) + u64(16) + u32(0) + u64(0) + text("b") + u32(1) + u64(8) + u32(0) + u64(32) + padding + padding, `"b": starts at offset 32 inside "a"`},
		{"a tensor twice", header(3, 2, 0) + strings.Repeat(text("a")+u32(1)+u64(8)+u32(0)+u64(0), 2) + padding + padding, `"a" stands twice`},
	} {
		_, err := ReadGGUF([]byte(tc.file))
		testhelp.OneLine(t, tc.name, err, tc.want)
	}
}

// smallGGUF is a qwen3 of one layer.
func smallGGUF() (metadata []GGUFField, tensors []GGUFTensor) {
	metadata = []GGUFField{
		{"general.architecture", "qwen3"}, {"qwen3.block_count", uint32(1)}, {"qwen3.embedding_length", uint32(32)},
		{"qwen3.attention.head_count", uint32(4)}, {"qwen3.attention.head_count_kv", uint32(2)}, {"qwen3.attention.key_length", uint32(16)},
		{"qwen3.attention.value_length", uint32(16)}, {"qwen3.feed_forward_length", uint32(64)}, {"qwen3.rope.freq_base", float32(1e6)},
		{"qwen3.context_length", uint32(1000)}, {"qwen3.attention.layer_norm_rms_epsilon", float32(1e-6)},
		{"tokenizer.ggml.eos_token_id", uint32(5)}, {"tokenizer.ggml.padding_token_id", uint32(4)},
	}
	add := func(name string, shape ...int) {
		n := 4
		for _, d := range shape {
			n *= d
		}
		tensors = append(tensors, GGUFTensor{name, backend.F32, shape, make([]byte, n)})
	}
	add("token_embd.weight", 48, 32)
	add("blk.0.attn_q.weight", 64, 32)
	add("blk.0.ffn_down.weight", 32, 64)
	add("output_norm.weight", 32)
	return metadata, tensors
}

func TestGGUFConfig(t *testing.T) {
	metadata, tensors := smallGGUF()
	build := func(extra []GGUFField, more ...GGUFTensor) (*Checkpoint, error) {
		var all []GGUFField
		for _, f := range metadata {
			for _, e := range extra {
				if e.Key == f.Key {
					f = e
				}
			}
			if f.Value != nil {
				all = append(all, f)
			}
		}
		for _, e := range extra {
			known := false
			for _, f := range metadata {
				known = known || f.Key == e.Key
			}
			if !known {
				all = append(all, e)
			}
		}
		return NewGGUF(writeGGUF(t, all, append(tensors[:len(tensors):len(tensors)], more...)))
	}
	c, err := build(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Config().String(), "qwen3, 1 layers, hidden 32, 4 heads, 2 kv heads of 16, mlp 64, vocab 48, tied"; got != want {
		t.Errorf("config %s, want %s", got, want)
	}
	if k := c.Config(); k.Rope.Theta != 1e6 || k.RMSNormEps != 1e-6 || k.MaxPositions != 1000 || k.MaskTokenID != -1 || !reflect.DeepEqual(k.EOSTokenIDs, []int32{5}) {
		t.Errorf("config %+v", *k)
	}
	if names := strings.Join(c.Names(), " "); names != "model.embed_tokens.weight model.layers.0.self_attn.q_proj.weight model.layers.0.mlp.down_proj.weight model.norm.weight" {
		t.Errorf("names %s", names)
	}
	if _, err := c.ReadFile("tokenizer.json"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("tokenizer.json of a file without a tokenizer: %v", err)
	}
	if data, ok := c.File("generation_config.json"); !ok || string(data) != `{"eos_token_id":[5]}` {
		t.Errorf("generation_config.json %s", data)
	}
	c, err = build([]GGUFField{{"tokenizer.ggml.mask_token_id", uint32(47)}, {"qwen3.rope.scaling.type", "yarn"}, {"qwen3.rope.scaling.factor", float32(4)},
		{"qwen3.rope.scaling.original_context_length", uint32(500)}, {"tokenizer.ggml.eot_token_id", uint32(6)}},
		GGUFTensor{"output.weight", backend.F32, []int{48, 32}, make([]byte, 48*32*4)})
	if err != nil {
		t.Fatal(err)
	}
	if k := c.Config(); k.TieEmbeddings || k.MaskTokenID != 47 || k.MaxPositions != 2000 || k.Rope.Type != "yarn" || k.Rope.Factor != 4 || len(k.EOSTokenIDs) != 2 {
		t.Errorf("config %+v", *k)
	}
	if c, err = build([]GGUFField{{"qwen3.rope.scaling.type", "linear"}, {"qwen3.rope.scaling.factor", float32(2)}}); err != nil || c.Config().Rope.Factor != 2 {
		t.Errorf("linear: %v", err)
	}
	for _, tc := range []struct {
		name  string
		extra []GGUFField
		more  []GGUFTensor
		want  string
	}{
		{"llama", []GGUFField{{"general.architecture", "llama"}}, nil, `general.architecture: found "llama", want qwen3, qwen2, qwen3moe, qwen3next, qwen35 or qwen35moe`},
		{"a number", []GGUFField{{"general.architecture", uint32(1)}}, nil, "general.architecture: found"},
		{"no layers", []GGUFField{{"qwen3.block_count", nil}}, nil, "qwen3.block_count: missing"},
		{"0 layers", []GGUFField{{"qwen3.block_count", uint32(0)}}, nil, "num_hidden_layers: found 0"},
		{"text for a number", []GGUFField{{"qwen3.block_count", "one"}}, nil, "qwen3.block_count: found \"one\", want a number"},
		{"split", []GGUFField{{"split.count", uint16(2)}}, nil, "split.count: one of 2 files"},
		{"values of another length", []GGUFField{{"qwen3.attention.value_length", uint32(8)}}, nil, "value_length: found 8, want the head dimension 16"},
		{"partial rotation", []GGUFField{{"qwen3.rope.dimension_count", uint32(8)}}, nil, "rope.dimension_count: found 8"},
		{"longrope", []GGUFField{{"qwen3.rope.scaling.type", "longrope"}}, nil, "longrope"},
		{"a sliding window", []GGUFField{{"qwen3.attention.sliding_window", uint32(9)}}, nil, "sliding_window: found 9"},
		{"frequencies", nil, []GGUFTensor{{"rope_freqs.weight", backend.F32, []int{1}, make([]byte, 4)}}, "rope_freqs.weight"},
		{"an unknown tensor", nil, []GGUFTensor{{"blk.0.attn_qkv.weight", backend.F32, []int{1}, make([]byte, 4)}}, `"blk.0.attn_qkv.weight": unknown`},
		{"a padded block number", nil, []GGUFTensor{{"blk.00.attn_q.weight", backend.F32, []int{1}, make([]byte, 4)}}, "unknown"},
		{"an end out of the vocabulary", []GGUFField{{"tokenizer.ggml.eos_token_id", uint32(48)}}, nil, "eos_token_id: found"},
	} {
		_, err := build(tc.extra, tc.more...)
		testhelp.OneLine(t, tc.name, err, tc.want)
	}
	tensors = tensors[1:]
	_, err = build(nil)
	testhelp.OneLine(t, "no embedding", err, "token_embd.weight is missing")
}

func TestOpen(t *testing.T) {
	metadata, tensors := smallGGUF()
	dir := testhelp.Folder(t, map[string][]byte{"small.gguf": writeGGUF(t, metadata, tensors), "broken.gguf": []byte("GGUF"), "other": []byte("other"), "empty": nil})
	path := filepath.Join(dir, "small.gguf")
	if link := filepath.Join(t.TempDir(), "link.gguf"); os.Symlink(path, link) == nil { // Windows may not
		path = link
	}
	c, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Names()) != 4 {
		t.Errorf("names %v", c.Names())
	}
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Error(err)
	}
	if c, err = Open(testhelp.Folder(t, shardedFiles(t))); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
	for name, want := range map[string]string{"broken.gguf": "broken.gguf: gguf file ends early", "other": "is no GGUF file: want one, or the folder", "empty": "is no GGUF file", "none": "no such file or folder"} {
		_, err := Open(filepath.Join(dir, name))
		testhelp.OneLine(t, name, err, want)
	}
	_, err = Open(dir)
	testhelp.OneLine(t, "a folder without a model", err, "config.json: no such file")
}

func TestWriteGGUFRefuses(t *testing.T) {
	for _, tc := range []struct {
		metadata []GGUFField
		tensors  []GGUFTensor
		want     string
	}{
		{[]GGUFField{{"k", 1}}, nil, "cannot write a int"},
		{[]GGUFField{{"general.alignment", uint32(3)}}, nil, "power of two"},
		{nil, []GGUFTensor{{"t", backend.Affine4, []int{1, 32}, nil}}, "cannot write affine4"},
		{nil, []GGUFTensor{{"t", backend.F32, []int{2}, make([]byte, 4)}}, "4 bytes of f32, want 8"},
		{nil, []GGUFTensor{{"t", backend.F32, []int{1, 1, 1, 1, 1}, make([]byte, 4)}}, "cannot write"},
		{nil, []GGUFTensor{{"t", backend.Q8_0, nil, nil}}, "positive dimensions"},
	} {
		testhelp.OneLine(t, tc.want, WriteGGUF(&bytes.Buffer{}, tc.metadata, tc.tensors), tc.want)
	}
}

// FuzzGGUF: what is read lies within the file without overlap, and is read
// back the same after writing; no model made of it panics.
func FuzzGGUF(f *testing.F) {
	metadata, tensors := smallGGUF()
	f.Add(writeGGUF(f, metadata, tensors[3:]))
	for _, tc := range badHybridGGUFs {
		f.Add(hybridGGUF(f, "qwen35moe", tc.change, tc.more...))
	}
	for _, architecture := range []string{"qwen3next", "qwen35", "qwen35moe"} {
		f.Add(hybridGGUF(f, architecture, nil))
	}
	f.Add(writeGGUF(f, allKinds(), nil))
	f.Add(writeGGUF(f, nil, allTypes()[15:]))
	f.Add(writeGGUF(f, []GGUFField{{"tokenizer.ggml.model", "gpt2"}, {"tokenizer.ggml.pre", "qwen35"}, {"tokenizer.ggml.tokens", []string{"a", "b", "ab", "<x>"}},
		{"tokenizer.ggml.token_type", []int32{1, 1, 1, 3}}, {"tokenizer.ggml.merges", []string{"a b"}}, {"tokenizer.chat_template", "{{ messages }}"}}, nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := ReadGGUF(data)
		if err != nil {
			return
		}
		total := 0
		for _, tensor := range g.Tensors {
			total += len(tensor.Data)
		}
		if total > len(data) {
			t.Fatalf("tensors of %d bytes in a file of %d", total, len(data))
		}
		written := writeGGUF(t, g.Metadata, g.Tensors)
		again, err := ReadGGUF(written)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(again.Tensors, g.Tensors) || !bytes.Equal(writeGGUF(t, again.Metadata, again.Tensors), written) {
			t.Fatal("read back otherwise")
		}
		for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"} {
			files := &ggufFiles{g, "fuzz", nil}
			if text, err := files.read(name); err == nil {
				if _, err := parseFields(text); err != nil {
					t.Fatalf("%s: %v in %s", name, err, text)
				}
			}
		}
		if c, err := NewGGUF(data); err == nil {
			Inspect(c)
		}
	})
}
