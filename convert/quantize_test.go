package convert

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/internal/testhelp"
	"windrow/quant"
	"windrow/rope"
	"windrow/synthetic"
)

// smallCheckpoint is a random model of two layers; rows of q are no multiple
// of 64 in o_proj.
func smallCheckpoint(t testing.TB, dt backend.DType) *checkpoint.Checkpoint {
	t.Helper()
	config := &checkpoint.Config{Architecture: "qwen3", HiddenSize: 64, Layers: 2, Heads: 3, KVHeads: 1, HeadDim: 32, IntermediateSize: 128, VocabSize: 96,
		RMSNormEps: 1e-6, MaxPositions: 256, MaskTokenID: -1, Rope: rope.Config{HeadDim: 32, Theta: 10000}}
	src := synthetic.RandomSource(config, dt, 9)
	var tensors []checkpoint.RawTensor
	for _, name := range src.Names() {
		x, _ := src.Tensor(name)
		tensors = append(tensors, checkpoint.RawTensor{Name: name, DType: strings.ToUpper(dt.String()), Shape: x.Shape, Data: x.Data})
	}
	c, err := checkpoint.New(map[string][]byte{
		"config.json": []byte(`{"model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1,
			"head_dim": 32, "intermediate_size": 128, "vocab_size": 96, "rope_theta": 1e4, "torch_dtype": "float32", "odd": {"<kept>": 1.50}}`),
		"model.safetensors": testSafetensors(t, nil, tensors),
		"tokenizer.json":    []byte("{\"a\": 1}\n"), "generation_config.json": []byte(`{"eos_token_id": [3]}`), "README.md": []byte("not copied"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func readTree(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		files[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestQuantize(t *testing.T) {
	src := smallCheckpoint(t, backend.BF16)
	dst := filepath.Join(t.TempDir(), "q4")
	p := Policy{Bits: 4, Group: 64, Selective: true, Widths: []Width{{Pattern: "down_proj", Bits: 8}}, Exclude: []string{"layers.1.*.v_proj"}}
	var last Progress
	report, err := Quantize(context.Background(), src, dst, p, func(now Progress) {
		if now.Done < last.Done {
			t.Errorf("progress went back from %d to %d", last.Done, now.Done)
		}
		last = now
	})
	if err != nil {
		t.Fatal(err)
	}
	if last.Done != last.Total || last.Total != checkpoint.Inspect(src).Bytes {
		t.Errorf("progress ended at %+v", last)
	}
	files := readTree(t, dst)
	if got, want := fmt.Sprint(slices.Sorted(maps.Keys(files))), "[config.json generation_config.json model.safetensors tokenizer.json]"; got != want {
		t.Errorf("files %s, want %s", got, want)
	}
	if entries, _ := os.ReadDir(filepath.Dir(dst)); len(entries) != 1 {
		t.Errorf("left beside it: %v", entries)
	}
	var config map[string]json.RawMessage
	if err := json.Unmarshal([]byte(files["config.json"]), &config); err != nil {
		t.Fatal(err)
	}
	want := `{"bits":4,"group_size":64,"lm_head":false,"model.embed_tokens":false,` +
		`"model.layers.0.mlp.down_proj":{"bits":8,"group_size":64},"model.layers.0.self_attn.o_proj":false,` +
		`"model.layers.1.mlp.down_proj":{"bits":8,"group_size":64},"model.layers.1.self_attn.o_proj":false,"model.layers.1.self_attn.v_proj":false}`
	for _, name := range []string{"quantization", "quantization_config"} {
		var compact bytes.Buffer
		if err := json.Compact(&compact, config[name]); err != nil || compact.String() != want {
			t.Errorf("%s: %s, want %s", name, compact.String(), want)
		}
	}
	if string(config["torch_dtype"]) != `"bfloat16"` || !strings.Contains(string(config["odd"]), "1.50") {
		t.Errorf("config.json: %s", files["config.json"])
	}

	s, err := checkpoint.ReadSafetensors([]byte(files["model.safetensors"]))
	if err != nil {
		t.Fatal(err)
	}
	if s.Metadata["format"] != "mlx" || bytes.Index([]byte(files["model.safetensors"]), s.Tensors[0].Data)%64 != 0 {
		t.Errorf("metadata %v, data at %d", s.Metadata, bytes.Index([]byte(files["model.safetensors"]), s.Tensors[0].Data))
	}
	up, _ := s.Lookup("model.layers.1.mlp.up_proj.weight")
	scales, _ := s.Lookup("model.layers.1.mlp.up_proj.scales")
	if up.DType != "U32" || fmt.Sprint(up.Shape) != "[128 8]" || scales.DType != "BF16" || fmt.Sprint(scales.Shape) != "[128 1]" {
		t.Errorf("up_proj: %s %v, scales %s %v", up.DType, up.Shape, scales.DType, scales.Shape)
	}

	q, err := checkpoint.Open(dst)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	memory, same, err := Quantized(context.Background(), src, p)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(same) != fmt.Sprint(report) {
		t.Errorf("reports differ: %+v, %+v", same, report)
	}
	in := checkpoint.Inspect(q)
	if in.Bytes != report.BytesAfter || in.Parameters != report.Parameters || report.BytesBefore != 2*report.Parameters || report.BitsBefore != 16 {
		t.Errorf("inspection %+v, report %+v", in, report)
	}
	names := slices.Sorted(slices.Values(q.Names()))
	if fmt.Sprint(names) != fmt.Sprint(slices.Sorted(slices.Values(src.Names()))) {
		t.Errorf("names %v", names)
	}
	for _, name := range names {
		onDisk, _ := q.Tensor(name)
		inMemory, _ := memory.Tensor(name)
		was, _ := src.Tensor(name)
		if onDisk.DType != inMemory.DType || onDisk.Group != inMemory.Group || !bytes.Equal(onDisk.Data, inMemory.Data) ||
			!bytes.Equal(onDisk.Scales, inMemory.Scales) || !bytes.Equal(onDisk.Biases, inMemory.Biases) {
			t.Errorf("%s: %v on disk, %v in memory", name, onDisk.DType, inMemory.DType)
		}
		if !onDisk.DType.Quantized() {
			if !bytes.Equal(onDisk.Data, was.Data) {
				t.Errorf("%s: was kept, with other bytes", name)
			}
			continue
		}
		a, b := make([]float32, was.Shape[1]), make([]float32, was.Shape[1])
		for o := range was.Shape[0] {
			quant.Row(a, &was, o)
			quant.Row(b, &onDisk, o)
			for i := range a {
				if d := a[i] - b[i]; d > 0.02 || d < -0.02 { // weights of deviation 0.02 in steps of 0.1/15
					t.Fatalf("%s: row %d, weight %d: %v came back as %v", name, o, i, a[i], b[i])
				}
			}
		}
	}
	var table bytes.Buffer
	if err := report.Table(&table); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/quantize-report.txt", table.Bytes())
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/quantize-report.json", append(text, '\n'))
}

// golden compares with a file; WINDROW_UPDATE=1 writes it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	if os.Getenv("WINDROW_UPDATE") == "1" {
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if want = bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n")); !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s", name, got)
	}
}

// One file or many, the weights are the same; f32 and f16 are rounded once.
func TestQuantizeShards(t *testing.T) {
	src := smallCheckpoint(t, backend.F32)
	dir := t.TempDir()
	p := Policy{Bits: 8, Group: 32}
	whole, parts := filepath.Join(dir, "whole"), filepath.Join(dir, "parts")
	if _, err := Quantize(context.Background(), src, whole, p, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := quantize(context.Background(), src, &output{}, parts, p, 20000, nil); err != nil {
		t.Fatal(err)
	}
	a, err := checkpoint.Open(whole)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := checkpoint.Open(parts)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	shards, _ := filepath.Glob(filepath.Join(parts, "model-0000?-of-0000?.safetensors"))
	if len(shards) < 3 {
		t.Errorf("shards %v", shards)
	}
	if in := checkpoint.Inspect(a); in.DTypes[0].DType != "affine8 g32" || in.DTypes[1].DType != "bf16" || len(in.DTypes) != 2 {
		t.Errorf("dtypes %+v", in.DTypes)
	}
	for _, name := range src.Names() {
		x, _ := a.Tensor(name)
		y, _ := b.Tensor(name)
		if x.DType != y.DType || !bytes.Equal(x.Data, y.Data) || !bytes.Equal(x.Scales, y.Scales) {
			t.Errorf("%s differs between one file and many", name)
		}
	}
}

// What is measured in memory is what is written, whatever the source's floats.
func TestQuantizeSourceIsWhatIsWritten(t *testing.T) {
	for _, dt := range []backend.DType{backend.F32, backend.F16, backend.BF16} {
		for _, p := range []Policy{DefaultPolicy(), {Bits: 8, Group: 32}} {
			src := smallCheckpoint(t, dt)
			dst := filepath.Join(t.TempDir(), "q")
			written, err := Quantize(context.Background(), src, dst, p, nil)
			if err != nil {
				t.Fatal(err)
			}
			disk, err := checkpoint.Open(dst)
			if err != nil {
				t.Fatal(err)
			}
			defer disk.Close()
			memory, report, err := Quantized(context.Background(), src, p)
			if err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(report) != fmt.Sprint(written) || checkpoint.Inspect(memory).Bytes != report.BytesAfter {
				t.Errorf("%v %s: %d bytes in memory, reports %+v, %+v", dt, p.Name(), checkpoint.Inspect(memory).Bytes, report, written)
			}
			names := slices.Sorted(slices.Values(memory.Names()))
			if want := slices.Sorted(slices.Values(disk.Names())); !slices.Equal(names, want) {
				t.Errorf("%v %s: tensors %v, on disk %v", dt, p.Name(), names, want)
			}
			for _, name := range names {
				a, _ := memory.Tensor(name)
				b, _ := disk.Tensor(name)
				if a.DType != b.DType || a.Group != b.Group || !slices.Equal(a.Shape, b.Shape) || !bytes.Equal(a.Data, b.Data) ||
					!bytes.Equal(a.Scales, b.Scales) || !bytes.Equal(a.Biases, b.Biases) {
					t.Errorf("%v %s: %s is %v %v in memory, %v %v on disk", dt, p.Name(), name, a.DType, a.Shape, b.DType, b.Shape)
				}
			}
		}
	}
}

var errKilled = errors.New("killed")

// A run that is killed before any change on disk leaves nothing in the place
// of the model, and the next run gives the same bytes as one that was never
// disturbed.
func TestQuantizeKilledAnywhere(t *testing.T) {
	src := smallCheckpoint(t, backend.BF16)
	p := DefaultPolicy()
	dir := t.TempDir()
	run := func(name string, fail int) (steps int, err error) {
		o := &output{step: func(string) error {
			steps++
			if fail > 0 && steps >= fail { // dead from here on: cleaning up fails, too
				return errKilled
			}
			return nil
		}}
		_, err = quantize(context.Background(), src, o, filepath.Join(dir, name), p, 50000, nil)
		return steps, err
	}
	steps, err := run("whole", 0)
	if err != nil {
		t.Fatal(err)
	}
	want := readTree(t, filepath.Join(dir, "whole"))
	if steps < 60 || len(want) < 6 {
		t.Fatalf("%d steps, files %v", steps, slices.Sorted(maps.Keys(want)))
	}
	const cleaning = 3 // after the rename: the model stands
	for fail := 1; fail <= steps; fail++ {
		_, err := run("killed", fail)
		if _, stat := os.Lstat(filepath.Join(dir, "killed")); (stat == nil) != (fail > steps-cleaning) {
			t.Fatalf("killed before step %d of %d: the model's folder: %v", fail, steps, stat)
		}
		if fail > steps-cleaning {
			if err != nil {
				t.Fatalf("killed before step %d of %d, after the rename: %v", fail, steps, err)
			}
			os.RemoveAll(filepath.Join(dir, "killed"))
		} else if !errors.Is(err, errKilled) {
			t.Fatalf("killed before step %d of %d: error %v", fail, steps, err)
		}
		if fail%2 == 0 { // what lies there is not trusted, whatever it is
			stale := filepath.Join(dir, "killed.partial", "model", "config.json")
			if os.WriteFile(stale, []byte("stale"), 0o644) == nil {
				os.WriteFile(filepath.Join(filepath.Dir(stale), "stale.safetensors"), []byte("stale"), 0o644)
			}
		}
		if _, err := run("killed", 0); err != nil {
			t.Fatalf("after a kill before step %d of %d: %v", fail, steps, err)
		}
		if got := readTree(t, filepath.Join(dir, "killed")); !maps.Equal(got, want) {
			t.Fatalf("after a kill before step %d of %d: other files", fail, steps)
		}
		os.RemoveAll(filepath.Join(dir, "killed"))
		if entries, _ := os.ReadDir(dir); len(entries) != 1 {
			t.Fatalf("after a kill before step %d of %d: left %v", fail, steps, entries)
		}
	}
}

// An error that is no kill cleans up at once.
func TestQuantizeFailsClean(t *testing.T) {
	src := smallCheckpoint(t, backend.BF16)
	dir := t.TempDir()
	full, n := errors.New("disk full"), 0
	o := &output{step: func(operation string) error {
		if n++; operation == "write" && n > 20 {
			return full
		}
		return nil
	}}
	if _, err := quantize(context.Background(), src, o, filepath.Join(dir, "q"), DefaultPolicy(), maxShardBytes, nil); !errors.Is(err, full) {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if _, err := Quantize(ctx, src, filepath.Join(dir, "q"), DefaultPolicy(), func(Progress) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("left %v", entries)
	}
}

func TestQuantizeRefuses(t *testing.T) {
	src := smallCheckpoint(t, backend.BF16)
	dir := testhelp.Folder(t, map[string][]byte{"file": nil, "foreign.partial": []byte("mine")})
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "folder"), 0o755), os.MkdirAll(filepath.Join(dir, "data.partial", "mine"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		dst  string
		p    Policy
		want string
	}{
		{"folder", DefaultPolicy(), "folder: exists"},
		{"file", DefaultPolicy(), "file: exists"},
		{"none/q", DefaultPolicy(), "no such folder"},
		{"foreign", DefaultPolicy(), "foreign.partial: exists, and is not what a killed quantize left"},
		{"data", DefaultPolicy(), "data.partial: exists, and is not"},
		{"q", Policy{Bits: 3, Group: 64}, "3 bits: want 4 or 8"},
	} {
		_, err := Quantize(context.Background(), src, filepath.Join(dir, tc.dst), tc.p, nil)
		testhelp.OneLine(t, tc.dst, err, tc.want)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "foreign.partial")); err != nil || string(data) != "mine" {
		t.Error("a file that is not ours was touched")
	}
	q := filepath.Join(dir, "q")
	if _, err := Quantize(context.Background(), src, q, DefaultPolicy(), nil); err != nil {
		t.Fatal(err)
	}
	again, err := checkpoint.Open(q)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	_, err = Quantize(context.Background(), again, q+"2", DefaultPolicy(), nil)
	testhelp.OneLine(t, "quantised already", err, "is affine4 already: want a model in bf16")

	bad := smallCheckpoint(t, backend.BF16)
	x, _ := bad.Tensor("model.layers.1.mlp.up_proj.weight")
	x.Data[2*64*5+1] = 0x7f // row 5
	x.Data[2*64*5] = 0x80
	_, err = Quantize(context.Background(), bad, q+"3", DefaultPolicy(), nil)
	testhelp.OneLine(t, "an infinite weight", err, "model.layers.1.mlp.up_proj.weight: row 5 holds NaN, infinite or too large values")
}

// Two runs to one place: the second sees that the first lives, and leaves it
// alone. Where there are no locks, the first to be replaced gives up.
func TestQuantizeTwoRuns(t *testing.T) {
	src := smallCheckpoint(t, backend.BF16)
	for _, locks := range []bool{true, false} {
		if !locks && runtime.GOOS == "windows" {
			continue // what is open cannot be taken away there: the first is never replaced
		}
		dst := filepath.Join(t.TempDir(), "q")
		first, started := &output{}, false
		if !locks {
			first.lock = func(*os.File) error { return nil }
		}
		_, err := quantize(context.Background(), src, first, dst, DefaultPolicy(), maxShardBytes, func(now Progress) {
			if started || now.Done < now.Total/2 {
				return
			}
			started = true
			other := &output{lock: first.lock}
			if !locks {
				other.begin(dst) // and is still at work
				return
			}
			_, err := quantize(context.Background(), src, other, dst, DefaultPolicy(), maxShardBytes, nil)
			testhelp.OneLine(t, "the second run", err, "q.partial: another run is writing q: wait for it, or choose another name")
		})
		_, stat := os.Lstat(dst)
		if locks && (err != nil || stat != nil) {
			t.Errorf("the first run: %v, %v", err, stat)
		}
		if !locks {
			testhelp.OneLine(t, "without locks", err, "was replaced by another run")
			if stat == nil {
				t.Error("the model was put in place from another run's folder")
			}
			continue
		}
		if entries, err := os.ReadDir(filepath.Dir(dst)); err != nil || len(entries) != 1 {
			t.Errorf("left %v, %v", entries, err)
		}
	}
}

// Many runs to one place at once: one writes the model, the others say why
// they do not, and nothing else is left.
func TestQuantizeCrowd(t *testing.T) {
	src := smallCheckpoint(t, backend.BF16)
	dir := t.TempDir()
	for round := range 20 {
		dst := filepath.Join(dir, fmt.Sprint("q", round))
		results := make(chan error, 8)
		for range cap(results) {
			go func() {
				_, err := Quantize(context.Background(), src, dst, DefaultPolicy(), nil)
				results <- err
			}()
		}
		written := 0
		for range cap(results) {
			err := <-results
			switch {
			case err == nil:
				written++
			case !strings.Contains(err.Error(), "another run is writing") && !strings.Contains(err.Error(), "exists: want the name of a new folder"):
				t.Error(err)
			}
		}
		entries, err := os.ReadDir(dir)
		if written != 1 || err != nil || len(entries) != round+1 {
			t.Fatalf("round %d: %d wrote a model, the folder holds %v, %v", round, written, entries, err)
		}
		c, err := checkpoint.Open(dst)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
}

// A folder that another run takes away is one that a run has made, at each moment.
func TestOursWhileAnotherEnds(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a folder that is being read cannot be taken away there")
	}
	o := &output{partial: filepath.Join(t.TempDir(), "q.partial")}
	marker := filepath.Join(o.partial, partialMarker)
	ended := make(chan error)
	go func() {
		var err error
		for range 3000 {
			err = errors.Join(err, os.Mkdir(o.partial, 0o755), os.WriteFile(marker, nil, 0o644), os.Remove(marker), os.Remove(o.partial))
		}
		ended <- err
	}()
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
			return
		default:
			if err := o.ours(); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
				if err := <-ended; err != nil {
					t.Error(err)
				}
				return
			}
		}
	}
}

func testSafetensors(t testing.TB, metadata map[string]string, tensors []checkpoint.RawTensor) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := checkpoint.WriteSafetensors(&b, metadata, tensors); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
