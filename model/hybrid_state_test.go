package model_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/conformance/backendtest"
	"windrow/cpu"
	"windrow/model"
)

// ends is a context that ends when it has been looked at so many times.
type ends struct {
	context.Context
	left int
}

func (e *ends) Err() error {
	if e.left--; e.left < 0 {
		return context.Canceled
	}
	return nil
}

// hybridRun drives a hybrid over one list of tokens, in whatever forwards, and compares
// each row's logits with those of one forward.
type hybridRun struct {
	t      *testing.T
	m      *model.Model
	tokens []int32
	want   [][]float32 // logits of each row
}

func newHybridRun(t *testing.T, o cpu.Options, name string, rows int) *hybridRun {
	h := &hybridRun{t: t, m: open(t, backendtest.Source(t, "testdata/golden", name), o)}
	r := rand.New(rand.NewPCG(5, 6))
	for range rows {
		h.tokens = append(h.tokens, int32(r.IntN(h.m.Config().VocabSize)))
	}
	c := h.cache()
	defer c.Close()
	for _, result := range h.forward(c, h.tokens) {
		h.want = append(h.want, result.Logits)
	}
	return h
}

func (h *hybridRun) cache() *model.Cache {
	h.t.Helper()
	c, err := h.m.NewCache(model.CacheOptions{Capacity: len(h.tokens) + 8, MaxRows: len(h.tokens), DType: backend.KVF32, StepRows: 6})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(c.Close)
	return c
}

func (h *hybridRun) forward(c *model.Cache, tokens []int32) []model.Result {
	h.t.Helper()
	return forward(h.t, h.m, batch(part{c, tokens}))
}

// check compares rows from base on, of which the first kept have the list's tokens.
func (h *hybridRun) check(what string, results []model.Result, base, kept int) {
	h.t.Helper()
	for r := range kept {
		for i, v := range results[r].Logits {
			if math.Float32bits(v) != math.Float32bits(h.want[base+r][i]) {
				h.t.Fatalf("%s: row %d, logit %d is %v, in one forward %v", what, base+r, i, v, h.want[base+r][i])
			}
		}
	}
}

// TestHybridCuts runs one list of tokens in random forwards: drafts that are kept or not,
// chunks, forwards that are cancelled after any operation, other text, ways back, marks
// and forks. Whatever came before, a row has the same bits.
func TestHybridCuts(t *testing.T) {
	for _, c := range []struct {
		name string
		o    cpu.Options
	}{{"qwen3-next-tiny", cpu.Options{Exact: true, Threads: 2}}, {"qwen3-5-text-tiny", cpu.Options{Threads: 1}}} {
		h := newHybridRun(t, c.o, c.name, 70)
		steps := 500
		if testing.Short() {
			steps = 100
		}
		for seed := range uint64(3) {
			h.random(rand.New(rand.NewPCG(seed, 9)), steps)
		}
	}
}

func (h *hybridRun) random(r *rand.Rand, steps int) {
	t := h.t
	list := []*model.Cache{h.cache()}
	copies := 0
	back := func(c *model.Cache, n int) {
		want := c.Reach(n)
		if got, err := c.Truncate(n); err != nil || got != want || got > n || got != c.Base() {
			t.Fatalf("back to %d: %d, %v, want %d", n, got, err, want)
		}
	}
	for step := range steps {
		c := list[r.IntN(len(list))]
		what := fmt.Sprintf("step %d at %d", step, c.Base())
		left := len(h.tokens) - c.Base()
		switch k := r.IntN(11); {
		case k == 0 || left == 0:
			back(c, r.IntN(c.Base()+1))
		case k == 1:
			c.Mark()
			if got := c.Reach(c.Base()); got != c.Base() {
				t.Fatalf("%s: a mark is not reached: %d", what, got)
			}
		case k == 2 && len(list) < 4:
			y, err := c.Fork(r.IntN(c.Base()+1), len(h.tokens)+8, len(h.tokens))
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			t.Cleanup(y.Close)
			list = append(list, y)
		case k == 3 && len(list) > 1:
			list = slices.DeleteFunc(list, func(x *model.Cache) bool { return x == c })
			c.Close()
		case k == 4: // cancelled somewhere
			n := 1 + r.IntN(left)
			if r.IntN(2) == 0 {
				n = min(n, c.StepRows())
			}
			b := batch(part{c, h.tokens[c.Base():][:n]})
			if _, err := h.m.Forward(&ends{t.Context(), 1 + r.IntN(40)}, b); err != nil && !errors.Is(err, context.Canceled) {
				t.Fatalf("%s: %v", what, err)
			} else if err == nil {
				continue
			}
			if r.IntN(2) == 0 {
				back(c, max(0, c.Base()-r.IntN(9)))
			}
		case k == 6: // other text, and back
			base := c.Base()
			for range 1 + r.IntN(3) {
				n := min(1+r.IntN(20), len(h.tokens)-c.Base())
				if n <= 0 {
					break
				}
				other := make([]int32, n)
				for i := range other {
					other[i] = int32(r.IntN(h.m.Config().VocabSize))
				}
				h.forward(c, other)
				if err := c.Commit(n); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if r.IntN(2) == 0 {
					c.Mark()
				}
			}
			back(c, base)
		case k == 10: // out, and in again
			if y := backendtest.Copied(t, r, c, h.cache); y != nil {
				list[slices.Index(list, c)] = y
				c.Close()
				copies++
			}
		case k == 5: // a chunk
			n := 1 + r.IntN(left)
			h.check(what, h.forward(c, h.tokens[c.Base():][:n]), c.Base(), n)
			lost := r.IntN(min(n, c.StepRows()) + 1)
			if err := c.Commit(n - lost); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		default: // drafts, of which some are wrong
			n := 1 + r.IntN(min(left, c.StepRows()))
			right := r.IntN(n + 1)
			rows := slices.Clone(h.tokens[c.Base():][:n])
			for i := right; i < n; i++ {
				rows[i] = int32(r.IntN(h.m.Config().VocabSize))
			}
			h.check(what, h.forward(c, rows), c.Base(), right)
			if err := c.Commit(right); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	if copies < steps/100 {
		t.Errorf("%d copies in %d steps", copies, steps)
	}
	for _, c := range list {
		c.Close()
	}
	if used, _ := h.m.Backend().Budget().Used(); used != 0 {
		t.Errorf("%d bytes are taken when all is closed", used)
	}
}

// TestHybridCancelled ends forwards after each operation, and goes on or back from there.
func TestHybridCancelled(t *testing.T) {
	h := newHybridRun(t, cpu.Options{Exact: true, Threads: 1}, "qwen3-next-tiny", 50)
	other := make([]int32, 20)
	for _, rows := range []int{3, 20} { // in place, and beside what there is
		for after := 1; ; after++ {
			done := false
			for back := range 6 {
				c := h.cache()
				for _, n := range []int{20, 4} {
					h.check("the beginning", h.forward(c, h.tokens[c.Base():][:n]), c.Base(), n)
					commit(t, c, n)
				}
				_, err := h.m.Forward(&ends{t.Context(), after}, batch(part{c, other[:rows]}))
				if done = err == nil; err != nil && !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				want := c.Reach(24 - back)
				if n, err := c.Truncate(24 - back); err != nil || n != want {
					t.Fatalf("back to %d: %d, %v", 24-back, n, err)
				}
				if back == 0 && c.Base() != 24 {
					t.Fatalf("after operation %d of a forward of %d rows, %d tokens are left of 24", after, rows, c.Base())
				}
				what := fmt.Sprintf("%d rows ended after operation %d, back by %d", rows, after, back)
				h.check(what, h.forward(c, h.tokens[c.Base():][:5]), c.Base(), 5)
				c.Close()
			}
			if done {
				break
			}
		}
	}
}

// TestHybridNeighbours: sequences of a hybrid that share forwards, in any order, have the
// bits that each has alone.
func TestHybridNeighbours(t *testing.T) {
	h := newHybridRun(t, cpu.Options{Exact: true, Threads: 2}, "qwen3-next-tiny", 60)
	r := rand.New(rand.NewPCG(1, 2))
	for range 4 {
		var list []*model.Cache
		for range 1 + r.IntN(8) {
			list = append(list, h.cache())
		}
		for range 12 {
			r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			var parts []part
			var bases []int
			for _, c := range list {
				n := min(1+r.IntN(10), len(h.tokens)-c.Base())
				if n > 0 {
					parts, bases = append(parts, part{c, h.tokens[c.Base():][:n]}), append(bases, c.Base())
				}
			}
			if len(parts) == 0 {
				break
			}
			b := batch(parts...)
			results := forward(t, h.m, b)
			for i, s := range b.Spans {
				h.check(fmt.Sprintf("sequence %d of %d", i, len(b.Spans)), results[s.First:s.First+s.Rows], bases[i], s.Rows)
				if err := s.Cache.Commit(s.Rows - r.IntN(min(s.Rows, s.Cache.StepRows())+1)); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, c := range list {
			c.Close()
		}
	}
}

// TestHybridCommit refuses what states cannot take back.
func TestHybridCommit(t *testing.T) {
	h := newHybridRun(t, cpu.Options{Exact: true, Threads: 1}, "qwen3-5-text-tiny", 20)
	c := h.cache()
	if !c.Recurrent() || c.StepRows() != 6 {
		t.Fatalf("steps of %d rows, recurrent %v", c.StepRows(), c.Recurrent())
	}
	h.forward(c, h.tokens)
	if err := c.Commit(13); err == nil {
		t.Error("7 of 20 rows left out, of which 6 are logged: want an error")
	}
	if err := c.Commit(14); err != nil {
		t.Error(err)
	}
	for _, o := range []model.CacheOptions{{Capacity: 10, MaxRows: 1, DType: backend.KVF32, StepRows: -1}} {
		if c, err := h.m.NewCache(o); err == nil {
			c.Close()
			t.Errorf("%+v: want an error", o)
		}
	}
}
