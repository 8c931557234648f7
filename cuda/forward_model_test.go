package cuda

import (
	"context"
	"math/rand/v2"
	"testing"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/checkpoint"
	"windrow/cuda/emulator"
	"windrow/model"
	"windrow/synthetic"
)

// anew is a backend that compiles the program of each forward again: none finds a
// graph, or anything that was readied ahead.
type anew struct{ backend.Backend }

// HostExperts are those of the backend.
func (a anew) HostExperts() (backend.HostExperts, int) {
	if h, ok := a.Backend.(backend.ExpertsOnHost); ok {
		return h.HostExperts()
	}
	return nil, 0
}

type anewForward struct {
	b backend.Backend
	p *backend.Program
	backend.Forward
}

func (a anew) Compile(p *backend.Program) (backend.Forward, error) {
	f, err := a.Backend.Compile(p)
	return &anewForward{a.Backend, p, f}, err
}

func (f *anewForward) Start(ctx context.Context, v backend.Values) (err error) {
	f.Close()
	if f.Forward, err = f.b.Compile(f.p); err != nil {
		return err
	}
	return f.Forward.Start(ctx, v)
}

// forwards is a random sequence of forwards of a model; what it draws does not
// depend on the backend.
type forwards struct {
	t      *testing.T
	m      *model.Model
	r      *rand.Rand
	caches [3]*model.Cache
}

func newForwards(t *testing.T, c *checkpoint.Config, b backend.Backend) *forwards {
	m, err := model.Load(b, synthetic.RandomSource(c, backend.Affine4, 5), model.Barring(90, 3))
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
	b := new(model.Batch)
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
			w := model.Wanted{Row: int32(r), TopK: f.r.IntN(3), Logits: f.r.IntN(4) == 0}
			if f.r.IntN(5) == 0 {
				w.Allowed = backend.NewIDSet(100)
				for range 30 {
					w.Allowed.Add(int32(f.r.IntN(100)))
				}
			}
			b.Want = append(b.Want, w)
		}
	}
	ctx, refused := f.t.Context(), false
	switch f.r.IntN(10) {
	case 0:
		b.Want = nil
	case 1:
		b.Hidden = func(_ int, states []float32) { out = append(out, states...) }
	case 2:
		b.Tokens[0], refused = -1, true
	case 3:
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		ctx, refused = cancelled, true
	case 4: // only ids that may not be chosen
		w := model.Wanted{Row: int32(len(b.Tokens) - 1), Allowed: backend.NewIDSet(100)}
		w.Allowed.Add(3)
		w.Allowed.Add(95)
		b.Want, refused = []model.Wanted{w}, true
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

// forwardsAgree runs n forwards of changing rows, caches and wants, with Taps, errors
// and cancelled contexts among them, on a backend as it is, and on one whose forwards
// are each the first of a program: their bits are equal.
func forwardsAgree(t *testing.T, one, other backend.Backend, n int) {
	forwardsOfAgree(t, small(true), one, other, n)
}

// forwardsOfAgree is forwardsAgree of a model of that config.
func forwardsOfAgree(t *testing.T, c *checkpoint.Config, one, other backend.Backend, n int) {
	a, b := newForwards(t, c, one), newForwards(t, c, anew{other})
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

func TestForwardsAgree(t *testing.T) {
	a, b := openCUDA(t), openCUDA(t)
	defer a.Close()
	defer b.Close()
	n := 45
	if testing.Short() && !emulator.OnGPU {
		n = 15
	}
	forwardsAgree(t, a, b, n)
}

func TestGroupForwardsAgree(t *testing.T) {
	forwardsAgree(t, openGroup(t, false), openGroup(t, false), 10)
}
