package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/conformance/backendtest"
	"windrow/conformance/decodertest"
	"windrow/cuda/emulator"
	"windrow/model"
)

// hybridModels are the golden models whose operations are all here, and small.
var hybridModels = []string{"qwen3-5-text-tiny"}

// TestHybrids runs the suite of gated DeltaNet and gated attention in both arithmetics. On
// the emulator, without WINDROW_SLOW, of the golden models only a small dense one.
func TestHybrids(t *testing.T) {
	golden := goldenDir
	if testing.Short() {
		golden = ""
	}
	models := hybridModels
	if emulator.OnGPU || os.Getenv("WINDROW_SLOW") != "" {
		models = nil
	} else {
		t.Log("left out: the golden models with experts, minutes on the emulator: set WINDROW_SLOW=1")
	}
	for _, exact := range []bool{true, false} {
		name := "default"
		if exact {
			name = "exact"
		}
		t.Run(name, func(t *testing.T) {
			if exact && testing.Short() && !emulator.OnGPU {
				t.Skip("the suite in exact arithmetic on the emulator: leave -short out")
			}
			backendtest.RunDelta(t, golden, func(t *testing.T) backend.Backend { return openBackend(t, exact) }, models...)
		})
	}
}

// hybridWalk drives a hybrid over one list of tokens in whatever forwards, and compares the
// logits of each row with those of forwards of 20 rows.
type hybridWalk struct {
	t      *testing.T
	m      *model.Model
	kv     backend.KVType
	tokens []int32
	want   [][]float32
}

func newHybridWalk(t *testing.T, b backend.Backend, kv backend.KVType, rows int) *hybridWalk {
	m, err := model.Load(b, backendtest.Source(t, goldenDir, hybridModels[0]))
	if err != nil {
		t.Fatal(err)
	}
	w := &hybridWalk{t: t, m: m, kv: kv}
	r := rand.New(rand.NewPCG(5, 6))
	for range rows {
		w.tokens = append(w.tokens, int32(r.IntN(m.Config().VocabSize)))
	}
	c := w.cache()
	defer c.Close()
	for c.Base() < rows {
		n := min(20, rows-c.Base())
		for _, result := range w.forward(c, w.tokens[c.Base():][:n]) {
			w.want = append(w.want, result.Logits)
		}
		w.commit(c, n)
	}
	return w
}

func (w *hybridWalk) cache() *model.Cache {
	w.t.Helper()
	c, err := w.m.NewCache(model.CacheOptions{Capacity: len(w.tokens) + 8, MaxRows: len(w.tokens), DType: w.kv, StepRows: 6})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	return c
}

func (w *hybridWalk) forward(c *model.Cache, tokens []int32) []model.Result {
	w.t.Helper()
	b := model.Batch{Spans: []model.Span{{Cache: c, Rows: len(tokens)}}}
	for i, id := range tokens {
		b.Tokens, b.Positions = append(b.Tokens, id), append(b.Positions, int32(c.Base()+i))
		b.Want = append(b.Want, model.Wanted{Row: int32(i), Logits: true})
	}
	results, err := w.m.Forward(w.t.Context(), &b)
	if err != nil {
		w.t.Fatal(err)
	}
	return results
}

func (w *hybridWalk) commit(c *model.Cache, n int) {
	w.t.Helper()
	if err := c.Commit(n); err != nil {
		w.t.Fatal(err)
	}
}

// check compares rows from base on, of which the first kept have the list's tokens.
func (w *hybridWalk) check(what string, results []model.Result, base, kept int) {
	w.t.Helper()
	for r := range kept {
		for i, v := range results[r].Logits {
			if math.Float32bits(v) != math.Float32bits(w.want[base+r][i]) {
				w.t.Fatalf("%s: row %d, logit %d is %v, before %v", what, base+r, i, v, w.want[base+r][i])
			}
		}
	}
}

// TestHybridWalks: whatever was drafted and rejected, gone back from, marked, forked, or
// run of other text, a row of a decode pass has the same bits, and a pass that shares its
// graph reads its own states.
func TestHybridWalks(t *testing.T) {
	for _, c := range []struct {
		exact bool
		kv    backend.KVType
	}{{true, backend.KVF32}, {false, backend.KVBF16}} {
		b := openBackend(t, c.exact)
		defer b.Close()
		w := newHybridWalk(t, b, c.kv, 70)
		steps := 120
		if testing.Short() {
			steps = 30
		}
		w.random(rand.New(rand.NewPCG(3, 9)), steps)
	}
}

func (w *hybridWalk) random(r *rand.Rand, steps int) {
	t := w.t
	list := []*model.Cache{w.cache()}
	back := func(c *model.Cache, n int) {
		want := c.Reach(n)
		if got, err := c.Truncate(n); err != nil || got != want || got > n || got != c.Base() {
			t.Fatalf("back to %d: %d, %v, want %d", n, got, err, want)
		}
	}
	for step := range steps {
		c := list[r.IntN(len(list))]
		what := fmt.Sprintf("step %d at %d", step, c.Base())
		left := len(w.tokens) - c.Base()
		switch k := r.IntN(10); {
		case k == 0 || left == 0:
			back(c, r.IntN(c.Base()+1))
		case k == 1:
			c.Mark()
		case k == 2 && len(list) < 3:
			y, err := c.Fork(r.IntN(c.Base()+1), len(w.tokens)+8, len(w.tokens))
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			t.Cleanup(y.Close)
			list = append(list, y)
		case k == 3 && len(list) > 1:
			list = slices.DeleteFunc(list, func(x *model.Cache) bool { return x == c })
			c.Close()
		case k == 4: // other text, and back
			base, n := c.Base(), min(1+r.IntN(40), left)
			other := make([]int32, n)
			for i := range other {
				other[i] = int32(r.IntN(w.m.Config().VocabSize))
			}
			w.forward(c, other)
			w.commit(c, n)
			back(c, base)
		case k == 5: // a chunk
			n := 1 + r.IntN(min(left, invariantRows))
			w.check(what, w.forward(c, w.tokens[c.Base():][:n]), c.Base(), n)
			w.commit(c, n-r.IntN(min(n, c.StepRows())+1))
		default: // drafts, of which some are wrong
			n := 1 + r.IntN(min(left, c.StepRows()))
			right := r.IntN(n + 1)
			rows := slices.Clone(w.tokens[c.Base():][:n])
			for i := right; i < n; i++ {
				rows[i] = int32(r.IntN(w.m.Config().VocabSize))
			}
			w.check(what, w.forward(c, rows), c.Base(), right)
			w.commit(c, right)
		}
	}
	for _, c := range list {
		c.Close()
	}
	if used, _ := w.m.Backend().Budget().Used(); used != 0 {
		t.Errorf("%d bytes are taken when all is closed", used)
	}
}

// TestHybridAnswers: a trained hybrid gives the reference's answers, and verified's are ar's
// whatever the window.
func TestHybridAnswers(t *testing.T) {
	if testing.Short() || !emulator.OnGPU && os.Getenv("WINDROW_SLOW") == "" {
		t.Skip("minutes on the emulator: set WINDROW_SLOW=1")
	}
	for _, exact := range []bool{true, false} {
		b := openBackend(t, exact)
		defer b.Close()
		decodertest.RunHybrid(t, goldenDir, b, 2)
	}
}
