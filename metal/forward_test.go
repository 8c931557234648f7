package metal

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/conformance/backendtest"
	"windrow/decoder"
	"windrow/metal/driver"
	"windrow/metal/emulator"
	"windrow/metal/fakeobjc"
	"windrow/model"
	"windrow/synthetic"
)

// smallModel is a golden model of a few thousand weights.
const smallModel = "qwen3-yarn"

func goldenTensors(t *testing.T, name string) *checkpoint.Safetensors {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(goldenDir, name, "golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	golden, err := checkpoint.ReadSafetensors(data)
	if err != nil {
		t.Fatal(err)
	}
	return golden
}

func loadSmall(t *testing.T, b backend.Backend) *model.Model {
	t.Helper()
	m, err := model.Load(b, backendtest.Source(t, goldenDir, smallModel))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Prefill in one forward and one row a forward agree with the golden tensors within
// the tolerances of docs/metal.md, and so with each other: the kernels of
// prefill and those of decoding are others.
func TestBatchedPrefillEqualsPerToken(t *testing.T) {
	golden := goldenTensors(t, smallModel)
	for _, c := range []struct {
		exact     bool
		kv        backend.KVType
		tolerance float64
	}{
		{true, backend.KVF32, 2e-5},
		{false, backend.KVBF16, 2e-2},
		{false, backend.KVInt8, 6e-2},
	} {
		b := openBackend(t, c.exact)
		deviations, err := loadSmall(t, b).Validate(t.Context(), golden, model.ValidateOptions{KV: c.kv, PerToken: true})
		if err != nil {
			t.Fatal(err)
		}
		perToken := 0
		for _, d := range deviations {
			if d.Entry == "prompt.logits (per token)" {
				perToken++
			}
			if !(d.RelativeNorm <= c.tolerance) {
				t.Errorf("exact %v, kv %v: %s: relative norm %.3g, want at most %g", c.exact, c.kv, d.Entry, d.RelativeNorm, c.tolerance)
			}
			if c.exact && d.ArgmaxEqual != 0 && d.ArgmaxEqual != d.Rows {
				t.Errorf("exact: %s: argmax equal in %d of %d rows", d.Entry, d.ArgmaxEqual, d.Rows)
			}
		}
		if perToken != 1 {
			t.Errorf("%d entries per token", perToken)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// batchOf is rows of one sequence, whose results are all wanted.
func batchOf(c *model.Cache, ids []int32) *model.Batch {
	b := &model.Batch{Tokens: ids, Spans: []model.Span{{Cache: c, Rows: len(ids)}}}
	for i := range ids {
		b.Positions = append(b.Positions, int32(c.Base()+i))
		b.Want = append(b.Want, model.Wanted{Row: int32(i), TopK: 2, Logits: true})
	}
	return b
}

// A forward is one command buffer, committed once and waited for once, with
// its results.
func TestOneSynchronisationPerStep(t *testing.T) {
	b, fake := countedBackend(t, Options{})
	m := loadSmall(t, b)
	c, err := m.NewCache(model.CacheOptions{Capacity: 200, MaxRows: 64, DType: backend.KVBF16})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i, rows := range []int{40, 1, 16, 1} {
		var before, after [3]int
		count := func(into *[3]int) {
			for i, message := range []string{"commandBufferWithUnretainedReferences", "commit", "waitUntilCompleted"} {
				into[i] = fake.Count(message)
			}
		}
		count(&before)
		if _, err := m.Forward(t.Context(), batchOf(c, make([]int32, rows))); err != nil {
			t.Fatal(err)
		}
		count(&after)
		for j := range after {
			if after[j] != before[j]+1 {
				t.Errorf("step %d, %d rows: %d command buffers, commits or waits, want 1", i, rows, after[j]-before[j])
			}
		}
		if err := c.Commit(1); err != nil {
			t.Fatal(err)
		}
	}
}

// Weights of a mapped file are used where they lie, and the results are those
// of copies, bit for bit; device memory does not hold them twice.
func TestMappedWeights(t *testing.T) {
	source, err := checkpoint.OpenFolder(filepath.Join(goldenDir, smallModel))
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	var results [2][]model.Result
	var wrapped [2]int
	for i, o := range []Options{{}, {Mapped: checkpoint.Mappings(source), Largest: 1 << 20}} {
		b, fake := countedBackend(t, o)
		m, err := model.Load(b, source)
		if err != nil {
			t.Fatal(err)
		}
		wrapped[i] = fake.Count("newBufferWithBytesNoCopy:length:options:deallocator:")
		c, err := m.NewCache(model.CacheOptions{Capacity: 20, MaxRows: 20, DType: backend.KVF32})
		if err != nil {
			t.Fatal(err)
		}
		if results[i], err = m.Forward(t.Context(), batchOf(c, []int32{3, 1, 4, 1, 5})); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if wrapped[0] != 0 || wrapped[1] == 0 || wrapped[1] > len(checkpoint.Mappings(source)) {
		t.Errorf("buffers without a copy: %v", wrapped)
	}
	for r := range results[0] {
		for i, v := range results[0][r].Logits {
			if math.Float32bits(v) != math.Float32bits(results[1][r].Logits[i]) {
				t.Fatalf("row %d, logit %d: %v mapped, %v copied", r, i, results[1][r].Logits[i], v)
			}
		}
	}
}

// Two goroutines generate at once, each with its backend, on one GPU: each gets
// what it gets alone.
func TestTwoGenerationsAtOnce(t *testing.T) {
	rt, _ := emulated(t)
	tokens := func(prompt []int32) []int32 {
		g, err := shareGPU(func() (*device, error) { return newDevice(rt) })
		if err != nil {
			t.Error(err)
			return nil
		}
		b := newBackend(g, Options{})
		defer func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}()
		m, err := model.Load(b, backendtest.Source(t, goldenDir, smallModel))
		if err != nil {
			t.Error(err)
			return nil
		}
		o := decoder.Options{Mode: decoder.AR, MaxTokens: 12, Window: 4, PrefillRows: 512, Vocabulary: decoder.Vocabulary{Size: int32(m.Config().VocabSize), MaskID: -1}}
		sum, err := generate(t.Context(), m, prompt, o, backend.KVBF16)
		if err != nil {
			t.Error(err)
		}
		return sum.Tokens
	}
	prompts := [][]int32{{5, 6, 7, 8, 9}, {40, 3, 22}}
	var alone, together [2][]int32
	for i, p := range prompts {
		alone[i] = tokens(p)
	}
	var wait sync.WaitGroup
	for i, p := range prompts {
		wait.Go(func() { together[i] = tokens(p) })
	}
	wait.Wait()
	for i := range prompts {
		if len(alone[i]) != 12 || !slices.Equal(alone[i], together[i]) {
			t.Errorf("prompt %d: alone %v, together %v", i, alone[i], together[i])
		}
	}
}

// emulatedWith is a backend on a machine with bounds or faults.
func emulatedWith(t *testing.T, o fakeobjc.Options) *Backend {
	t.Helper()
	emulator.Available(t)
	o.Compile = fakeobjc.Emulated(emulator.Plain, 0)
	return backendOn(t, fakeobjc.Start(t, o))
}

// backendOn is a backend on a machine.
func backendOn(t *testing.T, f *fakeobjc.Fake) *Backend {
	t.Helper()
	g, err := newGPU(driver.New(f))
	if err != nil {
		t.Fatal(err)
	}
	b := newBackend(g, Options{})
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// Work that the GPU gives up is the error of its forward, in one line; the next
// forward gives what it should.
func TestFailedSubmission(t *testing.T) {
	b := emulatedWith(t, fakeobjc.Options{FailCommit: 2})
	m := loadSmall(t, b)
	var logits [][]float32
	for i := range 3 {
		c, err := m.NewCache(model.CacheOptions{Capacity: 20, MaxRows: 20, DType: backend.KVBF16})
		if err != nil {
			t.Fatal(err)
		}
		results, err := m.Forward(t.Context(), batchOf(c, []int32{3, 1, 4}))
		if (err != nil) != (i == 1) || err != nil && strings.Contains(err.Error(), "\n") {
			t.Fatalf("forward %d: error %v", i, err)
		}
		if err == nil {
			logits = append(logits, results[2].Logits)
		}
		c.Close()
	}
	if len(logits) != 2 || !slices.Equal(logits[0], logits[1]) {
		t.Error("the forward after a failed one gives other logits")
	}
}

// Where memory ends, loading, storage and forwards fail with an error, and
// everything can be closed.
func TestOutOfMemory(t *testing.T) {
	source := backendtest.Source(t, goldenDir, smallModel)
	failed := map[string]int{}
	for memory := 1 << 19; ; memory += 1 << 19 {
		b := emulatedWith(t, fakeobjc.Options{Memory: memory})
		m, err := model.Load(b, source)
		if err != nil {
			failed["load"]++
			continue
		}
		c, err := m.NewCache(model.CacheOptions{Capacity: 200, MaxRows: 200, DType: backend.KVF32})
		if err != nil {
			t.Fatal(err) // it takes nothing yet
		}
		ids := make([]int32, 200)
		_, err = m.Forward(t.Context(), &model.Batch{Tokens: ids, Positions: ids, Spans: []model.Span{{Cache: c, Rows: 200}}})
		if err == nil {
			break
		}
		failed["forward"]++
		c.Close()
	}
	if failed["load"] == 0 || failed["forward"] == 0 {
		t.Errorf("what failed as memory grew: %v", failed)
	}
}

// No kernel of a forward reads or writes past its activations: in the checked
// build, with a buffer for each of them. Decoding and prefill, with windows of
// two sequences, in floats and in 4 bits.
func TestForwardStaysInItsBuffers(t *testing.T) {
	config := *smallConfig(t)
	for _, dt := range []backend.DType{backend.BF16, backend.Affine4} {
		rt := driver.New(fakeobjc.Start(t, fakeobjc.Options{Compile: fakeobjc.Emulated(emulator.Checked, 1)}))
		g, err := newGPU(rt)
		if err != nil {
			t.Fatal(err)
		}
		b := newBackend(g, Options{})
		b.arena.least = 1
		m, err := model.Load(b, synthetic.RandomSource(&config, dt, 1))
		if err != nil {
			t.Fatal(err)
		}
		var caches []*model.Cache
		for range 2 {
			c, err := m.NewCache(model.CacheOptions{Capacity: 200, MaxRows: 80, DType: backend.KVInt8})
			if err != nil {
				t.Fatal(err)
			}
			caches = append(caches, c)
		}
		for _, rows := range [][]int{{35, 3}, {7, 9}, {1, 1}} {
			var all model.Batch
			for i, n := range rows {
				one := batchOf(caches[i], make([]int32, n))
				all.Spans = append(all.Spans, model.Span{Cache: caches[i], First: len(all.Tokens), Rows: n})
				all.Tokens, all.Positions = append(all.Tokens, one.Tokens...), append(all.Positions, one.Positions...)
				all.Want = append(all.Want, model.Wanted{Row: int32(len(all.Tokens) - 1)})
			}
			if _, err := m.Forward(t.Context(), &all); err != nil {
				t.Fatalf("%v, rows %v: %v", dt, rows, err)
			}
			for i, n := range rows {
				if err := caches[i].Commit(n); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// smallConfig is a model of one layer with shapes that are not round.
func smallConfig(t *testing.T) *checkpoint.Config {
	t.Helper()
	emulator.Available(t)
	c := *backendtest.Source(t, goldenDir, smallModel).Config()
	c.Layers, c.HiddenSize, c.IntermediateSize, c.VocabSize = 1, 192, 320, 700
	return &c
}
