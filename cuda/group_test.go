package cuda

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/conformance/backendtest"
	"windrow/conformance/decodertest"
	"windrow/cpu"
	"windrow/cuda/emulator"
	"windrow/cuda/launch"
	"windrow/model"
	"windrow/rope"
	"windrow/synthetic"
)

// groupSize is how many GPUs the tests take.
const groupSize = 2

// groupLibrary is the driver's library for tests of several GPUs: the machine's
// own, or the emulated one with as many devices and an NCCL, which is part of it.
func groupLibrary(t testing.TB, devices int) string {
	t.Helper()
	library := emulator.Driver(t)
	if !emulator.OnGPU {
		t.Setenv("WINDROW_EMULATED_DEVICES", fmt.Sprint(devices))
		t.Setenv(launch.NCCLVariable, library)
	}
	return library
}

func openGroup(t testing.TB, exact bool) *Group {
	t.Helper()
	return openGroupOf(t, exact, groupSize)
}

func openGroupOf(t testing.TB, exact bool, devices int) *Group {
	t.Helper()
	g, err := NewGroup(Options{Exact: exact, Library: groupLibrary(t, devices)}, devices)
	if err != nil {
		if emulator.OnGPU && errors.Is(err, ErrNoDevice) {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		shards := g.shards
		if err := g.Close(); err != nil && g.dead == nil {
			t.Error(err)
		}
		for i, b := range shards {
			if b.device != nil {
				t.Errorf("GPU %d is still open", i)
			}
		}
	})
	return g
}

// small is a model's shape that two GPUs share, with a vocabulary whose halves
// are no whole chunks of statistics.
func small(tied bool) *checkpoint.Config {
	return &checkpoint.Config{
		Architecture: "qwen3", HiddenSize: 64, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 64, IntermediateSize: 512,
		VocabSize: 1300, RMSNormEps: 1e-6, MaxPositions: 512, TieEmbeddings: tied,
		Rope:        rope.Config{Type: rope.Default, HeadDim: 64, Theta: 10000},
		MaskTokenID: -1, EOSTokenIDs: []int32{1}, DType: "bfloat16",
	}
}

// forwardAll runs rows of a sequence of which base are there, and makes them
// permanent; it returns every row's result with its logits.
func forwardAll(t *testing.T, m *model.Model, c *model.Cache, base, rows int) []model.Result {
	t.Helper()
	b := &model.Batch{Spans: []model.Span{{Cache: c, Rows: rows}}}
	for r := range rows {
		b.Tokens = append(b.Tokens, int32((base+r)*37%m.Config().VocabSize))
		b.Positions = append(b.Positions, int32(base+r))
		b.Want = append(b.Want, model.Wanted{Row: int32(r), TopK: 4, Logits: true})
	}
	results, err := m.Forward(t.Context(), b)
	if err == nil {
		err = c.Commit(rows)
	}
	if err != nil {
		t.Fatal(err)
	}
	return results
}

func load(t *testing.T, b backend.Backend, src checkpoint.Source) (*model.Model, *model.Cache) {
	t.Helper()
	m, err := model.Load(b, src)
	if err != nil {
		t.Fatal(err)
	}
	c, err := m.NewCache(model.CacheOptions{Capacity: 256, MaxRows: 64, DType: backend.KVBF16})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return m, c
}

// distance is the relative norm of the difference of all rows' logits.
func distance(got, want []model.Result) float64 {
	var d, n float64
	for i := range want {
		for j, w := range want[i].Logits {
			d += math.Pow(float64(got[i].Logits[j]-w), 2)
			n += math.Pow(float64(w), 2)
		}
	}
	return math.Sqrt(d / n)
}

// A model on two GPUs does what the reference does, with a prefill, in steps, and
// with a head of its own or the embedding; a row's bits do not depend on the rows
// beside it.
func TestGroupForward(t *testing.T) {
	ref, err := cpu.New(cpu.Options{Exact: true, Kernels: "go", Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer ref.Close()
	for _, c := range []struct {
		dt      backend.DType
		tied    bool
		exact   bool
		devices int
	}{{backend.BF16, false, true, 2}, {backend.BF16, true, false, 2}, {backend.Affine4, false, false, 2}, {backend.Q8_0, true, false, 2}, {backend.F32, true, true, 2}, {backend.BF16, false, false, 3}, {backend.Affine4, true, false, 4}} {
		t.Run(fmt.Sprintf("%v tied=%t exact=%t on %d", c.dt, c.tied, c.exact, c.devices), func(t *testing.T) {
			if testing.Short() && !emulator.OnGPU && (c.dt == backend.F32 || c.dt == backend.Q8_0 || c.devices == 4) {
				t.Skip("other weights than bf16 and 4 bits, and four GPUs, on the emulator: leave -short out")
			}
			config := small(c.tied) // on 4 two have each KV head
			if c.devices == 3 {     // the vocabulary has no equal parts
				config.Heads, config.KVHeads, config.IntermediateSize = 6, 3, 384
			}
			tol := 2e-2
			if c.exact {
				tol = 1e-2 // keys and values rounded to bf16 may fall to the other side
			}
			groupForwards(t, openGroupOf(t, c.exact, c.devices), ref, synthetic.RandomSource(config, c.dt, 5), tol)
		})
	}
}

// groupForwards compares a prefill and steps of a model on a group with another backend.
func groupForwards(t *testing.T, g *Group, ref backend.Backend, src checkpoint.Source, tol float64) {
	t.Helper()
	want, wantCache := load(t, ref, src)
	got, cache := load(t, g, src)
	const prompt, rows = 40, 5
	for _, step := range []int{prompt, 1, rows} {
		a, b := forwardAll(t, got, cache, cache.Base(), step), forwardAll(t, want, wantCache, wantCache.Base(), step)
		if d := distance(a, b); !(d <= tol) {
			t.Errorf("%d rows: relative norm %.3g, want at most %g", step, d, tol)
		}
	}
	// The last rows again, one by one.
	back := func() {
		if n, err := cache.Truncate(prompt + 1); err != nil || n != prompt+1 {
			t.Fatalf("back to %d: %d, %v", prompt+1, n, err)
		}
	}
	back()
	together := forwardAll(t, got, cache, prompt+1, rows)
	back()
	for i := range rows {
		alone := forwardAll(t, got, cache, prompt+1+i, 1)[0]
		if !slices.Equal(alone.Logits, together[i].Logits) || alone.Entropy != together[i].Entropy || alone.LogSumExp != together[i].LogSumExp || !slices.Equal(alone.Top, together[i].Top) {
			t.Errorf("row %d alone gives other bits than among %d", i, rows)
		}
	}
	for i, b := range g.shards {
		if n := len(b.graphs.list); n != 2 {
			t.Errorf("GPU %d has %d graphs, want one of 1 row and one of %d", i, n, rows)
		}
	}
}

// TestGroupGolden compares a golden model on two GPUs with its tensors.
func TestGroupGolden(t *testing.T) {
	files := []string{"qwen3-yarn/golden"}
	if emulator.OnGPU {
		files = []string{"qwen3-untied/golden", "qwen3-yarn/golden", "tiny-gsm/golden", "tiny-gsm/prompt"}
	}
	g := openGroup(t, true)
	for _, name := range files {
		m, err := model.Load(g, backendtest.Source(t, goldenDir, filepath.Dir(name)))
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(goldenDir, name+".safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		file, err := checkpoint.ReadSafetensors(data)
		if err != nil {
			t.Fatal(err)
		}
		deviations, err := m.Validate(context.Background(), file, model.ValidateOptions{KV: backend.KVF32})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range deviations {
			if !(d.RelativeNorm <= 2e-5) || d.ArgmaxEqual != d.Rows && d.ArgmaxEqual != 0 {
				t.Errorf("%s, %s: relative norm %.3g, argmax equal in %d of %d rows", name, d.Entry, d.RelativeNorm, d.ArgmaxEqual, d.Rows)
			}
		}
	}
}

// TestGroupConformance runs the suite on weights that are whole on every GPU.
func TestGroupConformance(t *testing.T) {
	g := openGroup(t, false)
	if !emulator.OnGPU && os.Getenv("WINDROW_SLOW") == "" {
		backendtest.RunStorage(t, g)
		t.Log("left out: the rest of the suite, minutes on the emulator: set WINDROW_SLOW=1")
		return
	}
	open := func(*testing.T) backend.Backend { return shared{g} }
	backendtest.RunBrief(t, open)
	backendtest.RunDelta(t, "", open)
	backendtest.RunExperts(t, "", open)
}

// shared leaves closing to the end of a test.
type shared struct{ *Group }

func (shared) Close() error { return nil }

// TestGroupTraces reproduces golden traces on two GPUs, and holds verified
// against ar there.
func TestGroupTraces(t *testing.T) {
	if testing.Short() {
		t.Skip("minutes on the emulator: leave -short out")
	}
	if emulator.OnGPU || os.Getenv("WINDROW_SLOW") != "" {
		decodertest.Run(t, openGroup(t, true), traceProblems())
	} else {
		t.Log("left out: golden traces on two GPUs, minutes on the emulator: set WINDROW_SLOW=1")
	}
	decodertest.RunVerified(t, openGroup(t, false), traceProblems(), backend.KVBF16)
}

// What is missing is told in one line.
func TestGroupRefusals(t *testing.T) {
	if emulator.OnGPU {
		t.Skip("what the emulator can leave out")
	}
	library := groupLibrary(t, 2)
	refused := func(what string, devices int, is error, words string) {
		t.Helper()
		g, err := NewGroup(Options{Library: library}, devices)
		if err == nil {
			g.Close()
		}
		if err == nil || is != nil && !errors.Is(err, is) || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q in one line", what, err, words)
		}
	}
	refused("three of two", 3, ErrNoDevice, "the driver shows 2")
	refused("one", 1, nil, "want 2 to")
	t.Setenv("WINDROW_EMULATED_NCCL", "20806")
	refused("an old NCCL", 2, launch.ErrNoNCCL, "is version 2.8.6, want 2.9.6 or later")
	t.Setenv("WINDROW_EMULATED_NCCL", "2708")
	refused("an older NCCL", 2, launch.ErrNoNCCL, "is version 2.7.8, want 2.9.6 or later")
	t.Setenv(launch.NCCLVariable, "off")
	refused("NCCL turned off", 2, launch.ErrNoNCCL, "several GPUs need NCCL")
	t.Setenv(launch.NCCLVariable, filepath.Join(t.TempDir(), "libnccl.so.2"))
	refused("no NCCL", 2, launch.ErrNoNCCL, "libnccl.so.2")
	t.Setenv(launch.NCCLVariable, "libc.so.6")
	refused("another library", 2, launch.ErrNoNCCL, "no function nccl")
}

// Models that GPUs cannot share are refused before anything is uploaded.
func TestGroupShapes(t *testing.T) {
	g := openGroup(t, true)
	for _, c := range []struct {
		change func(*checkpoint.Config)
		dt     backend.DType
		words  string
	}{
		{func(c *checkpoint.Config) { c.KVHeads, c.Heads = 3, 6 }, backend.BF16, "2 GPUs cannot share this model: 3 KV heads do not divide by 2; it runs on 1"},
		{func(c *checkpoint.Config) { c.KVHeads, c.Heads = 1, 3 }, backend.BF16, "2 GPUs cannot share this model: 3 heads do not divide by 2; it runs on 1"},
		{func(c *checkpoint.Config) { c.IntermediateSize = 513 }, backend.BF16, "513 inner columns do not divide by 2"},
		{func(c *checkpoint.Config) { c.IntermediateSize = 64 }, backend.Affine4, "64 inputs in groups of 64 do not divide by 2"},
	} {
		config := small(false)
		c.change(config)
		if _, err := model.Load(g, synthetic.RandomSource(config, c.dt, 1)); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%v, want %q", err, c.words)
		}
	}
}

// An error on one GPU ends the forward on all of them: too little memory leaves the
// group of use, a failed exchange does not.
func TestGroupErrors(t *testing.T) {
	if emulator.OnGPU {
		t.Skip("errors that the emulator makes")
	}
	t.Setenv("WINDROW_EMULATED_MEMORY", fmt.Sprint(256<<20))
	g := openGroup(t, false)
	m, cache := load(t, g, synthetic.RandomSource(small(false), backend.BF16, 5))
	full := g.shards[1].device.Context
	full.Enter()
	defer full.Leave()
	free, _, err := full.MemInfo()
	if err != nil {
		t.Fatal(err)
	}
	hog, err := full.Alloc(int(free) - 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	batch := func() error {
		_, err := m.Forward(t.Context(), &model.Batch{Tokens: []int32{1}, Positions: []int32{0}, Spans: []model.Span{{Cache: cache, Rows: 1}}})
		return err
	}
	if err := batch(); err == nil || !strings.Contains(err.Error(), "GPU 1: ") || !strings.Contains(err.Error(), "out of device memory") {
		t.Fatalf("no memory on GPU 1: %v", err)
	}
	full.Enter()
	err = full.Free(hog)
	full.Leave()
	if err != nil {
		t.Fatal(err)
	}
	forwardAll(t, m, cache, 0, 1)

	t.Setenv("WINDROW_EMULATED_NCCL_FAILS", "1")
	if err := batch(); err == nil || !strings.Contains(err.Error(), "GPU 1: ") || !strings.Contains(err.Error(), "rank 1 was told to fail") {
		t.Fatalf("a failed exchange: %v", err)
	}
	t.Setenv("WINDROW_EMULATED_NCCL_FAILS", "")
	if err := batch(); err == nil || !strings.Contains(err.Error(), "no longer connected") {
		t.Errorf("after a failed exchange: %v", err)
	}
}

// TestGroupPeers: the sums that the GPUs' own kernels make have the bits of those that
// NCCL gathers, and where GPUs do not reach each other NCCL does all of it.
func TestGroupPeers(t *testing.T) {
	if testing.Short() && !emulator.OnGPU {
		t.Skip("every group twice on the emulator: leave -short out")
	}
	const steps = "1 5 32 3 1" // rows, after a prompt
	answers := func(devices int) (all []model.Result, peers bool) {
		g := openGroupOf(t, false, devices)
		config := small(false)
		if devices == 3 {
			config.Heads, config.KVHeads, config.IntermediateSize = 6, 3, 384
		}
		m, cache := load(t, g, synthetic.RandomSource(config, backend.BF16, 5))
		for _, rows := range append([]string{"40"}, strings.Fields(steps)...) {
			n, _ := strconv.Atoi(rows)
			all = append(all, forwardAll(t, m, cache, cache.Base(), n)...)
		}
		return all, g.peers != nil
	}
	for _, devices := range []int{2, 3} {
		if emulator.OnGPU && devices > groupSize {
			continue
		}
		got, peers := answers(devices)
		if !peers && !emulator.OnGPU {
			t.Fatalf("%d GPUs do not exchange by kernels", devices)
		}
		t.Setenv(launch.PeersVariable, "off")
		want, peers := answers(devices)
		if peers {
			t.Fatalf("with %s=off they still do", launch.PeersVariable)
		}
		t.Setenv(launch.PeersVariable, "")
		for i := range want {
			if !slices.Equal(got[i].Logits, want[i].Logits) {
				t.Fatalf("row %d of all on %d GPUs: other bits than through NCCL", i, devices)
			}
		}
	}
	if emulator.OnGPU {
		return
	}
	t.Setenv("WINDROW_EMULATED_PEERS", "0")
	if _, peers := answers(2); peers {
		t.Error("GPUs that do not reach each other exchange by kernels")
	}
}

// TestGroupPeersAbort: a GPU that fails leaves none waiting in a kernel.
func TestGroupPeersAbort(t *testing.T) {
	g := openGroup(t, false)
	if g.peers == nil {
		t.Skip("the GPUs do not reach each other's memory")
	}
	leavesNone(t, g, time.Minute, func(d *launch.Device) error {
		dst, err := d.Context.Alloc(4 * launch.TriedFloats)
		if err != nil {
			return err
		}
		d.JoinPartials(dst, launch.TriedFloats, true)
		return errors.Join(d.Take(), d.Stream.Synchronize(), d.Context.Free(dst))
	})
}

// leavesNone fails GPU 1 while the others exchange, and wants that error soon.
func leavesNone(t *testing.T, g *Group, most time.Duration, exchange func(d *launch.Device) error) {
	t.Helper()
	failure := errors.New("told to fail")
	start := time.Now()
	err := g.together(func(i int, b *Backend) error {
		if i == 1 {
			time.Sleep(50 * time.Millisecond)
			return failure
		}
		d := b.device
		d.Context.Enter()
		defer d.Context.Leave()
		return exchange(d)
	})
	if !errors.Is(err, failure) {
		t.Errorf("error %v, want that of GPU 1", err)
	}
	if _, err := g.Compile(new(backend.Program)); !errors.Is(err, failure) {
		t.Errorf("a program afterwards: %v", err)
	}
	if d := time.Since(start); d > most {
		t.Errorf("GPU 0 waited %v for GPU 1", d)
	}
}

// A GPU that fails before its exchange leaves no other one in it.
func TestGroupAbort(t *testing.T) {
	leavesNone(t, openGroup(t, false), 3*time.Minute, func(d *launch.Device) error {
		if err := d.GatherPartials(launch.TriedFloats); err != nil {
			return err
		}
		return d.Stream.Synchronize()
	})
}
