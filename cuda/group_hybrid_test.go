package cuda

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/conformance/backendtest"
	"windrow/conformance/decodertest"
	"windrow/cuda/emulator"
	"windrow/model"
	"windrow/synthetic"
)

// groupGolden compares a golden model on several GPUs, in forwards of those lengths, with
// its float32 logits, as closely as on one; in decode passes all lengths give equal bits.
func groupGolden(t *testing.T, devices int, name string, chunks ...int) {
	t.Helper()
	m, err := model.Load(openGroupOf(t, true, devices), backendtest.Source(t, goldenDir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	backendtest.CheckGoldenLengths(t, m, goldenDir, name, true, func(chunk int) bool { return chunk > 0 && chunk <= invariantRows }, chunks...)
}

// family is a small model of random weights of an architecture, whose first layer is a
// DeltaNet where it has some; its key heads and KV heads are as many.
func family(architecture string, heads int, tiled bool) *checkpoint.Config {
	c := small(false)
	c.Architecture, c.Heads, c.KVHeads, c.IntermediateSize = architecture, 2*heads, heads, heads*64
	if architecture != "qwen3_5_text" {
		c.Experts = &checkpoint.Experts{Count: 8, PerToken: 3, InnerSize: heads * 64, Renormalise: true, Step: 1}
	}
	if architecture != "qwen3_moe" {
		c.AttentionGate, c.Rope.HeadDim = true, 16
		c.Delta = &checkpoint.DeltaNet{KeyHeads: heads, ValueHeads: 2 * heads, KeyDim: 32, ValueDim: 64, Conv: 4, Layers: []bool{true, false}, Tiled: tiled}
		if c.Experts != nil {
			c.Experts.SharedInnerSize = heads * 128
		}
	}
	return c
}

// TestGroupFamilies compares forwards of small models on several GPUs with one, in every
// form in which heads lie.
func TestGroupFamilies(t *testing.T) {
	for _, c := range []struct {
		architecture string
		heads        int
		kvHeads      int // fewer than GPUs: some of these have the same one
		tiled        bool
		dt           backend.DType
		exact        bool
		devices      int
	}{
		{"qwen3_moe", 2, 2, false, backend.Affine4, false, 2},
		{"qwen3_next", 4, 4, false, backend.BF16, true, 4},
		{"qwen3_next", 4, 2, false, backend.Affine4, false, 4},
		{"qwen3_5_text", 3, 3, true, backend.Q8_0, false, 3},
		{"qwen3_5_text", 3, 1, true, backend.BF16, true, 3},
		{"qwen3_5_moe_text", 2, 2, true, backend.BF16, true, 2},
		{"qwen3_5_moe_text", 4, 4, false, backend.Affine4, false, 2},
	} {
		t.Run(fmt.Sprintf("%s tiled=%t %v exact=%t kv=%d on %d", c.architecture, c.tiled, c.dt, c.exact, c.kvHeads, c.devices), func(t *testing.T) {
			if testing.Short() && (c.devices > 2 || c.tiled) {
				t.Skip("more than two GPUs, and tiled heads: leave -short out")
			}
			config := family(c.architecture, c.heads, c.tiled)
			config.KVHeads = c.kvHeads
			one := openBackend(t, c.exact)
			defer one.Close()
			tol := 2e-2
			if c.exact {
				tol = 1e-2
			}
			groupForwards(t, openGroupOf(t, c.exact, c.devices), one, synthetic.RandomSource(config, c.dt, 6), tol)
		})
	}
}

// TestGroupPrompt compares a prompt of so many rows that experts are grouped by rows, and
// GPUs' sums are NCCL's, with one GPU.
func TestGroupPrompt(t *testing.T) {
	const rows = 140
	src := synthetic.RandomSource(family("qwen3_next", 2, false), backend.Affine4, 9)
	last := func(b backend.Backend) []model.Result {
		t.Helper()
		m, err := model.Load(b, src)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		c, err := m.NewCache(model.CacheOptions{Capacity: 256, MaxRows: rows, DType: backend.KVBF16})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		batch := &model.Batch{Spans: []model.Span{{Cache: c, Rows: rows}}}
		for r := range rows {
			batch.Tokens, batch.Positions = append(batch.Tokens, int32(r*37%1300)), append(batch.Positions, int32(r))
			if r >= rows-8 {
				batch.Want = append(batch.Want, model.Wanted{Row: int32(r), Logits: true})
			}
		}
		results, err := m.Forward(t.Context(), batch)
		if err == nil {
			err = c.Commit(rows)
		}
		if err != nil {
			t.Fatal(err)
		}
		return append(results, forwardAll(t, m, c, rows, 3)...)
	}
	one := openBackend(t, false)
	defer one.Close()
	if d := distance(last(openGroup(t, false)), last(one)); !(d <= 2e-2) {
		t.Errorf("relative norm %.3g, want at most 2e-2", d)
	} else {
		t.Logf("relative norm %.3g", d)
	}
}

// TestGroupBeside: rows of two sequences in one forward on a group have the bits that they
// have alone.
func TestGroupBeside(t *testing.T) {
	m, first := load(t, openGroup(t, false), synthetic.RandomSource(family("qwen3_next", 2, false), backend.BF16, 7))
	defer m.Close()
	second, err := m.NewCache(model.CacheOptions{Capacity: 256, MaxRows: 64, DType: backend.KVBF16})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	forwardAll(t, m, first, 0, 40)
	forwardAll(t, m, second, 0, 7)
	forward := func(list ...model.Span) []model.Result {
		t.Helper()
		var b model.Batch
		for _, s := range list {
			s.First = len(b.Tokens)
			b.Spans = append(b.Spans, s)
			for r := range s.Rows {
				b.Want = append(b.Want, model.Wanted{Row: int32(len(b.Tokens)), TopK: 4, Logits: true})
				b.Tokens, b.Positions = append(b.Tokens, int32(11+31*r)), append(b.Positions, int32(s.Cache.Base()+r))
			}
		}
		results, err := m.Forward(t.Context(), &b) // nothing is committed
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	one, other := model.Span{Cache: first, Rows: 1}, model.Span{Cache: second, Rows: 5}
	got := forward(one, other)
	for i, want := range append(forward(one), forward(other)...) {
		if !slices.Equal(got[i].Logits, want.Logits) || !slices.Equal(got[i].Top, want.Top) {
			t.Errorf("row %d of two sequences has other bits than alone", i)
		}
	}
}

// TestGroupStates: states over two GPUs take of the budget what they take of one GPU's,
// go back as far, and make room for each other as there; also where both GPUs have the
// same KV head, which takes what two heads take.
func TestGroupStates(t *testing.T) {
	source := func(kvHeads int) checkpoint.Source {
		c := family("qwen3_5_text", 2, false)
		c.KVHeads = kvHeads
		return synthetic.RandomSource(c, backend.BF16, 8)
	}
	type trace struct {
		what        string
		used, reach int64
	}
	walk := func(t *testing.T, b backend.Backend, src checkpoint.Source) (list []trace) {
		m, first := load(t, b, src)
		defer m.Close()
		note := func(what string, reach int) {
			used, _ := b.Budget().Used()
			list = append(list, trace{what, used, int64(reach)})
		}
		step := func(what string, c *model.Cache, rows int) {
			t.Helper()
			forwardAll(t, m, c, c.Base(), rows)
			note(what, first.Reach(40))
		}
		reserve := func(what string, c *model.Cache, n int) {
			t.Helper()
			if err := c.Reserve(n); err != nil {
				t.Fatal(err)
			}
			note(what, 0)
		}
		reserve("reserved", first, 100)
		step("a prompt", first, 40)
		first.Mark()
		for range 20 {
			step("a step", first, 1)
		}
		fork, err := first.Fork(55, 256, 64)
		if err != nil {
			t.Fatal(err)
		}
		step("a fork's step", fork, 3)
		used, _ := b.Budget().Used()
		b.Budget().Limit(used + used/8)
		defer b.Budget().Limit(0)
		fresh, err := m.NewCache(model.CacheOptions{Capacity: 256, MaxRows: 64, DType: backend.KVBF16})
		if err != nil {
			t.Fatal(err)
		}
		step("another sequence, for which the mark has to go", fresh, 2)
		if got := first.Reach(40); got == 40 {
			t.Error("the mark is there still")
		}
		if err := fresh.Reserve(250); err == nil {
			t.Error("more than the budget was reserved")
		}
		note("refused", 0)
		for _, c := range []*model.Cache{first, fork, fresh} {
			c.Close()
			note("closed", 0)
		}
		if used, _ := b.Budget().Used(); used != 0 {
			t.Errorf("%d bytes are taken when all is closed", used)
		}
		return list
	}
	one := openBackend(t, false)
	defer one.Close()
	want := walk(t, one, source(2))
	for _, kvHeads := range []int{2, 1} {
		t.Run(fmt.Sprintf("%d KV heads", kvHeads), func(t *testing.T) {
			got := walk(t, openGroup(t, false), source(kvHeads))
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("%s: %d bytes taken, back to %d; on one GPU %d, %d", want[i].what, got[i].used, got[i].reach, want[i].used, want[i].reach)
				}
			}
		})
	}
}

// TestGroupVerified: verified's tokens are ar's, of a hybrid with experts in default
// arithmetic; also where both GPUs have the same KV head.
func TestGroupVerified(t *testing.T) {
	for _, kvHeads := range []int{2, 1} {
		t.Run(fmt.Sprintf("%d KV heads", kvHeads), func(t *testing.T) {
			if testing.Short() && kvHeads == 1 {
				t.Skip("leave -short out")
			}
			config := family("qwen3_next", 2, false)
			config.KVHeads = kvHeads
			m, err := model.Load(openGroup(t, false), synthetic.RandomSource(config, backend.Affine4, 5), model.Barring(1200, 5))
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			verifiedIsAR(t, m)
		})
	}
}

// slowTier reports whether tests run that take minutes on the emulator.
func slowTier() bool { return emulator.OnGPU || os.Getenv("WINDROW_SLOW") != "" }

// TestGroupHybrids: mixtures and hybrids on two GPUs by their golden logits.
func TestGroupHybrids(t *testing.T) {
	if testing.Short() {
		t.Skip("leave -short out")
	}
	models, chunks := []string{"qwen3-moe-tiny", "qwen3-next-tiny", "qwen3-5-text-tiny"}, []int{0, 16}
	if slowTier() {
		models, chunks = append(models, "qwen3-next-long", "qwen3-5-moe-tiny", "tiny-gsm-next"), []int{0, 1, 7, 16}
	} else {
		t.Log("left out: the larger golden mixtures and hybrids on two GPUs, minutes on the emulator: set WINDROW_SLOW=1")
	}
	for _, name := range models {
		t.Run(name, func(t *testing.T) { groupGolden(t, 2, name, chunks...) })
	}
}

// TestGroupWalks: states by heads on two GPUs are what they are on one, whatever was
// drafted, rejected, gone back from, marked, forked, or copied out and in.
func TestGroupWalks(t *testing.T) {
	if testing.Short() {
		t.Skip("leave -short out")
	}
	steps := 40
	if slowTier() {
		steps = 150
	}
	for _, exact := range []bool{true, false} {
		t.Run(fmt.Sprintf("exact=%t", exact), func(t *testing.T) {
			backendtest.RunWalk(t, openGroup(t, exact), backendtest.Source(t, goldenDir, hybridModels[0]), backend.KVBF16, rand.New(rand.NewPCG(7, 9)), steps)
		})
		if !slowTier() {
			break
		}
	}
}

// TestGroupCopiesWalk: so they are where both GPUs have the same KV head.
func TestGroupCopiesWalk(t *testing.T) {
	config := family("qwen3_5_text", 2, true)
	config.KVHeads = 1
	backendtest.RunWalk(t, openGroup(t, false), synthetic.RandomSource(config, backend.BF16, 4), backend.KVBF16, rand.New(rand.NewPCG(7, 8)), 40)
}

// TestGroupHybridAnswers: a trained hybrid gives the reference's answers, and verified's
// are ar's.
func TestGroupHybridAnswers(t *testing.T) {
	if testing.Short() || !slowTier() {
		t.Skip("minutes on the emulator: set WINDROW_SLOW=1")
	}
	for _, exact := range []bool{true, false} {
		decodertest.RunHybrid(t, goldenDir, openGroup(t, exact), 2)
	}
}
