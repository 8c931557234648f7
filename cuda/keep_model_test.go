package cuda

import (
	"context"
	"math/rand/v2"
	"testing"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/model"
	"windrow/synthetic"
)

// lister hides that passes can be kept: every forward is listed.
type lister struct{ backend.Backend }

func (l lister) Begin(rows int) (backend.Pass, error) {
	p, err := l.Backend.Begin(rows)
	return struct{ backend.Pass }{p}, err
}

// forwards is a random sequence of forwards of a model; what it draws does not
// depend on the backend.
type forwards struct {
	t      *testing.T
	m      *model.Model
	r      *rand.Rand
	caches [3]*model.Cache
}

func newForwards(t *testing.T, b backend.Backend) *forwards {
	m, err := model.Load(b, synthetic.RandomSource(small(true), backend.Affine4, 5))
	if err != nil {
		t.Fatal(err)
	}
	return &forwards{t: t, m: m, r: rand.New(rand.NewPCG(7, 1))}
}

// cache is sequence i's, a new one now and then: the last one rotates.
func (f *forwards) cache(i, rows int) *model.Cache {
	c := f.caches[i]
	if c != nil && (c.Base()+rows > c.Capacity() || f.r.IntN(12) == 0) {
		c.Close()
		c = nil
	}
	if c == nil {
		o := model.CacheOptions{Capacity: 190 + f.r.IntN(50), MaxRows: 150, DType: backend.KVBF16}
		if i == 2 {
			o.Window, o.Keep = 60, 4
		}
		var err error
		if c, err = f.m.NewCache(o); err != nil {
			f.t.Fatal(err)
		}
		f.caches[i] = c
	}
	return c
}

// forward runs one and returns all that it says.
func (f *forwards) forward() (out []float32) {
	b := &model.Batch{Want: model.Want{TopK: f.r.IntN(3), Except: int32(f.r.IntN(2)) - 1, Logits: f.r.IntN(4) == 0, Limit: int32(f.r.IntN(2) * 90)}}
	usual := f.r.IntN(3) != 0
	for i := range f.caches {
		if i != 0 && (usual || f.r.IntN(2) == 0) {
			continue
		}
		rows := []int{1, 1, 4, 9}[f.r.IntN(4)]
		if !usual {
			rows = []int{1, 7, 35, 140}[f.r.IntN(4)]
		}
		c := f.cache(i, rows)
		b.Spans = append(b.Spans, model.Span{Cache: c, First: len(b.Tokens), Rows: rows})
		for r := range rows {
			b.Tokens = append(b.Tokens, int32(f.r.IntN(90)))
			b.Positions = append(b.Positions, int32(c.Base()+r))
		}
	}
	all := f.r.IntN(3) != 0
	for r := range b.Tokens {
		if all || r == len(b.Tokens)-1 {
			b.Want.Rows = append(b.Want.Rows, int32(r))
		}
	}
	ctx, refused := f.t.Context(), false
	switch f.r.IntN(10) {
	case 0:
		b.Want.Rows = nil
	case 1:
		b.Hidden = func(_ int, states []float32) { out = append(out, states...) }
	case 2:
		b.Tokens[0], refused = -1, true
	case 3:
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		ctx, refused = cancelled, true
	case 4: // only an id that may not be chosen
		b.Want.Limit, b.Want.Except, refused = 1, 0, true
	}
	results, err := f.m.Forward(ctx, b)
	if (err != nil) != refused {
		f.t.Fatalf("error %v", err)
	}
	for _, s := range b.Spans {
		if n := f.r.IntN(s.Rows + 1); err == nil && s.Cache.Base()+n <= s.Cache.Capacity() {
			if err := s.Cache.Commit(n); err != nil {
				f.t.Fatal(err)
			}
		}
	}
	return append(out, numbers(results)...)
}

// forwardsAgree runs n forwards of changing rows, caches and wants, with readers,
// errors and cancelled contexts among them, on a backend that keeps operations, and
// on one whose forwards are all listed: their bits are equal.
func forwardsAgree(t *testing.T, kept, listed backend.Backend, n int) {
	a, b := newForwards(t, kept), newForwards(t, lister{listed})
	for i := range n {
		got, want := a.forward(), b.forward()
		if len(got) != len(want) {
			t.Fatalf("forward %d: %d numbers, want %d", i, len(got), len(want))
		}
		if err := vectors.Equal(got, want); err != nil {
			t.Fatalf("forward %d: %v", i, err)
		}
	}
}

func TestForwardsKept(t *testing.T) {
	a, b := openCUDA(t), openCUDA(t)
	defer a.Close()
	defer b.Close()
	forwardsAgree(t, a, b, 45)
}

func TestGroupForwardsKept(t *testing.T) {
	forwardsAgree(t, openGroup(t, false), openGroup(t, false), 10)
}
