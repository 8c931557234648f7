package backendtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/model"
)

// walkRows is how many rows a forward of a walk has at most: all backends have decode
// forwards of that many.
const walkRows = 32

// RunWalk drives a hybrid at random: whatever was drafted and rejected, gone back from,
// marked, forked, run of other text, or copied out and in, a row of a decode forward has
// the same bits, and all that was taken comes back.
func RunWalk(t *testing.T, b backend.Backend, source checkpoint.Source, kv backend.KVType, r *rand.Rand, steps int) {
	t.Helper()
	newWalk(t, b, source, kv, 70).random(r, steps)
}

// walk drives a hybrid over one list of tokens in whatever forwards, and compares the
// logits of each row with those of forwards of 20 rows.
type walk struct {
	t      *testing.T
	m      *model.Model
	kv     backend.KVType
	tokens []int32
	want   [][]float32
}

func newWalk(t *testing.T, b backend.Backend, source checkpoint.Source, kv backend.KVType, rows int) *walk {
	m, err := model.Load(b, source)
	if err != nil {
		t.Fatal(err)
	}
	w := &walk{t: t, m: m, kv: kv}
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

func (w *walk) cache() *model.Cache {
	w.t.Helper()
	c, err := w.m.NewCache(model.CacheOptions{Capacity: len(w.tokens) + 8, MaxRows: len(w.tokens), DType: w.kv, StepRows: 6})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	return c
}

func (w *walk) forward(c *model.Cache, tokens []int32) []model.Result {
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

func (w *walk) commit(c *model.Cache, n int) {
	w.t.Helper()
	if err := c.Commit(n); err != nil {
		w.t.Fatal(err)
	}
}

// check compares rows from base on, of which the first kept have the list's tokens.
func (w *walk) check(what string, results []model.Result, base, kept int) {
	w.t.Helper()
	for r := range kept {
		for i, v := range results[r].Logits {
			if math.Float32bits(v) != math.Float32bits(w.want[base+r][i]) {
				w.t.Fatalf("%s: row %d, logit %d is %v, before %v", what, base+r, i, v, w.want[base+r][i])
			}
		}
	}
}

func (w *walk) random(r *rand.Rand, steps int) {
	t := w.t
	list := []*model.Cache{w.cache()}
	back := func(c *model.Cache, n int) {
		want := c.Reach(n)
		if got, err := c.Truncate(n); err != nil || got != want || got > n || got != c.Base() {
			t.Fatalf("back to %d: %d, %v, want %d", n, got, err, want)
		}
	}
	copies := 0
	for step := range steps {
		c := list[r.IntN(len(list))]
		what := fmt.Sprintf("step %d at %d", step, c.Base())
		left := len(w.tokens) - c.Base()
		switch k := r.IntN(11); {
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
		case k == 6: // out, and in again
			if y := Copied(t, r, c, w.cache); y != nil {
				list[slices.Index(list, c)] = y
				c.Close()
				copies++
			}
		case k == 5: // a chunk
			n := 1 + r.IntN(min(left, walkRows))
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
	if list[0].Copies() && copies < steps/40 {
		t.Errorf("%d copies in %d steps", copies, steps)
	}
	for _, c := range list {
		c.Close()
	}
	if used, _ := w.m.Backend().Budget().Used(); used != 0 {
		t.Errorf("%d bytes are taken when all is closed", used)
	}
}
