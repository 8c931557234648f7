package paging

import (
	"errors"
	"math/rand/v2"
	"testing"

	"windrow/backend"
)

// counted makes numbered states, and counts those that are out.
type counted struct {
	t    *testing.T
	next int
	out  map[*int]bool
}

func (p *counted) Take() (*int, error) {
	p.next++
	n := p.next
	p.out[&n] = true
	return &n, nil
}

func (p *counted) Give(v *int) {
	if !p.out[v] {
		p.t.Fatal("states are given back twice")
	}
	delete(p.out, v)
}

const logRows = 4

func newTestStates(t *testing.T, marks int, limit int64) (*States[*int], *counted, *backend.Budget) {
	shape := backend.StateShape{KeyHeads: 1, ValueHeads: 1, KeyDim: 1, ValueDim: 1, Conv: 2}
	l := backend.Layout{Layers: []backend.LayerStore{{Kind: backend.StoreState, State: shape}, {}, {Kind: backend.StoreState, State: shape}}, Slots: 1000, LogRows: logRows}
	pool, budget := &counted{t: t, out: map[*int]bool{}}, new(backend.Budget)
	budget.Limit(limit * l.StateBytes())
	return NewStates[*int](l, pool, NewMarks[*int](marks), budget), pool, budget
}

// run is a forward; it ends after some layers.
func run(t *testing.T, s *States[*int], base, rows, layers int) error {
	t.Helper()
	err := s.Begin(base, rows)
	if err == nil {
		for layer := range layers {
			s.Done(layer)
		}
	}
	return err
}

// TestStatesAtRandom drives sequences beside what they may reach by the rules alone: a
// place behind which rows were logged, or marked, and no rows since. All that is taken
// comes back.
func TestStatesAtRandom(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 4))
		first, pool, budget := newTestStates(t, 1+r.IntN(6), 0)
		type sequence struct {
			s    *States[*int]
			base int
		}
		list := []*sequence{{s: first}}
		for range 200 {
			x := list[r.IntN(len(list))]
			switch k := r.IntN(8); {
			case k == 0:
				n := r.IntN(x.base + 1)
				x.base = x.s.Reach(n)
				if x.base > n || x.s.Reach(x.base) != x.base {
					t.Fatalf("seed %d: back to %d reaches %d, then %d", seed, n, x.base, x.s.Reach(x.base))
				}
				x.s.Truncate(x.base)
			case k == 1:
				x.s.Mark(x.base)
			case k == 2 && len(list) < 5:
				n := x.s.Reach(r.IntN(x.base + 1))
				y, err := x.s.Fork(x.s.layout, n)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				list = append(list, &sequence{y, n})
			case k == 3 && len(list) > 1:
				x.s.Close()
				for i := range list {
					if list[i] == x {
						list = append(list[:i], list[i+1:]...)
						break
					}
				}
			case k == 4: // cancelled
				if err := run(t, x.s, x.base, 1+r.IntN(12), r.IntN(2)); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if got := x.s.Reach(x.base); got != x.base {
					t.Fatalf("seed %d: after a cancelled forward %d of %d are reached", seed, got, x.base)
				}
			default:
				rows := 1 + r.IntN(12)
				if err := run(t, x.s, x.base, rows, 2); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if r.IntN(5) > 0 {
					lost := r.IntN(min(rows, logRows) + 1)
					from := max(x.base, x.base+rows-logRows)
					x.base += rows - lost
					for n := from; n <= x.base; n++ {
						if x.s.Reach(n) != n {
							t.Fatalf("seed %d: %d of %d are not reached, which are logged", seed, n, x.base)
						}
					}
				}
			}
			bytes := int64(0)
			for _, y := range list {
				bytes += y.s.Bytes()
			}
			if used, _ := budget.Used(); used > bytes || used != int64(len(pool.out))*first.bytes {
				t.Fatalf("seed %d: %d bytes are taken, sequences have %d, %d states are out", seed, used, bytes, len(pool.out))
			}
		}
		for _, x := range list {
			x.s.Close()
		}
		if used, _ := budget.Used(); used != 0 || len(pool.out) != 0 {
			t.Fatalf("seed %d: %d bytes, %d states are out when all is closed", seed, used, len(pool.out))
		}
	}
}

// TestStatesReserve: what is reserved is what forwards take, and undone it takes nothing.
func TestStatesReserve(t *testing.T) {
	s, pool, budget := newTestStates(t, 4, 2)
	undo, err := s.Reserve(100)
	if err != nil || len(pool.out) != 2 {
		t.Fatalf("%d states for a prompt of several forwards, %v", len(pool.out), err)
	}
	undo()
	if used, _ := budget.Used(); used != 0 {
		t.Errorf("%d bytes are taken after undo", used)
	}
	if _, err := s.Reserve(100); err != nil {
		t.Fatal(err)
	}
	budget.Limit(1) // no more
	for _, step := range [][2]int{{0, 40}, {40, 40}, {80, 20}} {
		if err := run(t, s, step[0], step[1], 2); err != nil {
			t.Errorf("a forward within what was reserved: %v", err)
		}
	}
	if err := run(t, s, 100, 1, 2); err != nil || len(pool.out) != 1 {
		t.Errorf("a step: %v, %d states", err, len(pool.out))
	}
	other, lacks := NewStates(s.layout, s.pool, s.marks, budget), (*backend.MemoryError)(nil)
	if _, err := other.Reserve(1); !errors.As(err, &lacks) || len(pool.out) != 1 {
		t.Errorf("without memory: %v, %d states", err, len(pool.out))
	}
}

// TestMarks: the least recently used goes, whoever has it; a forward's memory goes before
// marks.
func TestMarks(t *testing.T) {
	s, pool, _ := newTestStates(t, 2, 0)
	for base := 0; base < 50; base += 10 {
		if err := run(t, s, base, 10, 2); err != nil {
			t.Fatal(err)
		}
		s.Mark(base + 10)
	}
	if err := run(t, s, 50, 10, 2); err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]int{60: 60, 56: 56, 55: 50, 50: 50, 46: 46, 45: 40, 40: 40, 36: 36, 35: 0, 30: 0} {
		if got := s.Reach(n); got != want {
			t.Errorf("back to %d reaches %d, want %d", n, got, want)
		}
	}
	s.marks.Limit(0)
	if got := s.Reach(50); got != 50 && got != 0 || s.Reach(40) != 0 {
		t.Errorf("without marks %d and %d are reached", got, s.Reach(40))
	}
	s.Mark(60)
	if err := run(t, s, 60, 1, 2); err != nil {
		t.Fatal(err)
	}
	if len(pool.out) > 1 {
		t.Errorf("%d states are out where no marks are kept", len(pool.out))
	}
	s.Close()
	if err := s.Begin(0, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if _, err := s.Fork(s.layout, 0); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
