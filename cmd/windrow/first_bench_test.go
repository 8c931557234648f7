package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/models/tinygsm"
	"windrow/synthetic"
)

// BenchmarkFirstToken runs `windrow generate` and measures from its start to the first byte of
// the answer, ms. The model is a folder of random weights, 4-bit groups or bf16, with a
// vocabulary of Qwen's size: of the shape that WINDROW_SHAPE names ("qwen3-0.6b"), on the CPU,
// or on the GPU whose number WINDROW_CUDA_DEVICE has. Files are in the page cache. A "cold"
// machine has never run the kernels, nor measured anything; "warm" is the next start there.
func BenchmarkFirstToken(b *testing.B) {
	if !tinygsm.Available {
		b.Skip("built without the embedded model, whose tokenizer is made larger")
	}
	shape := os.Getenv("WINDROW_SHAPE")
	if shape == "" {
		shape = "qwen3-0.6b"
	}
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	program := filepath.Join(b.TempDir(), "windrow")
	if err := os.Symlink(self, program); err != nil { // see TestMain
		b.Fatal(err)
	}
	args := []string{"generate", "--backend", "cpu", "--mode", "ar", "--max-tokens", "8"}
	if os.Getenv("WINDROW_CUDA_DEVICE") != "" {
		args[2] = "cuda"
	}
	for _, dt := range []backend.DType{backend.Affine4, backend.BF16} {
		folder := b.TempDir()
		if err := writeRandom(folder, shape, dt); err != nil {
			b.Fatal(err)
		}
		first := func(b *testing.B, caches string) float64 {
			ms, err := firstByte(program, caches, append(args, "--model", folder, "Write a short story about a windrow of hay and the people who made it."))
			if err != nil {
				b.Fatal(err)
			}
			return ms
		}
		first(b, b.TempDir()) // files come to the page cache
		for _, machine := range []string{"cold", "warm"} {
			b.Run(fmt.Sprintf("dtype=%v/machine=%s", dt, machine), func(b *testing.B) {
				caches := b.TempDir()
				if machine == "warm" {
					first(b, caches)
				}
				var all []float64
				for b.Loop() {
					if machine == "cold" {
						caches = b.TempDir()
					}
					all = append(all, first(b, caches))
				}
				slices.Sort(all)
				b.ReportMetric(all[len(all)/2], "median-ms")
				b.ReportMetric(all[0], "least-ms")
				b.ReportMetric(all[len(all)-1], "largest-ms")
			})
		}
	}
}

// firstByte runs the program and measures until it answers.
func firstByte(program, caches string, args []string) (ms float64, err error) {
	c := exec.Command(program, args...)
	c.Env = append(os.Environ(), "XDG_CACHE_HOME="+caches, cacheVariable+"=")
	var said strings.Builder
	c.Stderr = &said
	out, err := c.StdoutPipe()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := c.Start(); err != nil {
		return 0, err
	}
	_, err = out.Read(make([]byte, 1))
	ms = float64(time.Since(start).Microseconds()) / 1000
	if err == nil {
		_, err = io.Copy(io.Discard, out)
	}
	if w := c.Wait(); w != nil {
		err = fmt.Errorf("%w: %s", w, said.String())
	}
	return ms, err
}

// writeRandom writes a folder as mlx-lm does: a Qwen3 with random weights.
func writeRandom(folder, shape string, dt backend.DType) error {
	c, ok := synthetic.ShapeConfig(shape)
	if !ok {
		return fmt.Errorf("no shape %q", shape)
	}
	src := synthetic.RandomSource(c, dt, 1)
	var raw []checkpoint.RawTensor
	for _, name := range src.Names() {
		t, _ := src.Tensor(name)
		if !t.DType.Affine() {
			raw = append(raw, checkpoint.RawTensor{Name: name, DType: "BF16", Shape: t.Shape, Data: t.Data})
			continue
		}
		module, groups := strings.TrimSuffix(name, ".weight"), []int{t.Shape[0], t.Shape[1] / t.Group}
		raw = append(raw,
			checkpoint.RawTensor{Name: name, DType: "U32", Shape: []int{t.Shape[0], t.Shape[1] / 8}, Data: t.Data},
			checkpoint.RawTensor{Name: module + ".scales", DType: "BF16", Shape: groups, Data: t.Scales},
			checkpoint.RawTensor{Name: module + ".biases", DType: "BF16", Shape: groups, Data: t.Biases})
	}
	f, err := os.Create(filepath.Join(folder, checkpoint.WeightsFile))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := checkpoint.WriteSafetensors(f, map[string]string{"format": "mlx"}, raw); err != nil {
		return err
	}
	config := map[string]any{
		"model_type": "qwen3", "architectures": []string{"Qwen3ForCausalLM"}, "torch_dtype": "bfloat16", "hidden_act": "silu",
		"hidden_size": c.HiddenSize, "num_hidden_layers": c.Layers, "num_attention_heads": c.Heads, "num_key_value_heads": c.KVHeads,
		"head_dim": c.HeadDim, "intermediate_size": c.IntermediateSize, "vocab_size": c.VocabSize, "max_position_embeddings": c.MaxPositions,
		"rope_theta": 1e6, "rms_norm_eps": c.RMSNormEps, "tie_word_embeddings": c.TieEmbeddings, "attention_bias": false,
	}
	if dt.Affine() {
		config["quantization"] = map[string]int{"group_size": 64, "bits": 4}
	}
	data, err := json.Marshal(config)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, checkpoint.ConfigFile), data, 0o644)
	}
	if err == nil {
		err = writeLargeTokenizer(folder)
	}
	return err
}

// writeLargeTokenizer writes tiny-gsm's tokenizer, with as many tokens and merges as Qwen's.
func writeLargeTokenizer(folder string) error {
	const tokens = 151_643
	files := tinygsm.Files()
	var whole, model map[string]any
	if err := json.Unmarshal(files["tokenizer.json"], &whole); err != nil {
		return err
	}
	model = whole["model"].(map[string]any)
	vocab, merges := model["vocab"].(map[string]any), model["merges"].([]any)
	list := make([]string, 0, tokens)
	for token := range vocab {
		list = append(list, token)
	}
	slices.Sort(list)
	for i, few := 0, len(list); len(vocab) < tokens; i++ { // each with each, as long as it takes
		left, right := list[i/few%len(list)], list[i%few]
		token := left + right
		if _, there := vocab[token]; there || len(token) > 14 {
			continue
		}
		vocab[token] = len(vocab) + 4 // behind the added ones
		list, merges = append(list, token), append(merges, []string{left, right})
	}
	model["merges"] = merges
	data, err := json.MarshalIndent(whole, "", " ")
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "tokenizer.json"), data, 0o644)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "tokenizer_config.json"), files["tokenizer_config.json"], 0o644)
	}
	return err
}
