package paging

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/backend"
)

// sheet is a page of a pool under test: a byte a token.
type sheet [backend.PageTokens]byte

// stack is a pool that knows who has what.
type stack struct {
	t    *testing.T
	out  map[*sheet]bool
	most int // pages that there are; 0: no end
	deaf bool
}

var errNoPages = errors.New("no more pages")

func (s *stack) Take() (*sheet, error) {
	if s.most > 0 && len(s.out) >= s.most {
		return nil, errNoPages
	}
	p := new(sheet)
	for i := range p {
		p[i] = 0xee
	}
	s.out[p] = true
	return p, nil
}

func (s *stack) Give(p *sheet) {
	if !s.out[p] {
		s.t.Fatal("a page is given back twice")
	}
	delete(s.out, p)
}

func (s *stack) Copy(to, from *sheet) error {
	if !s.out[to] || !s.out[from] {
		s.t.Fatal("a copy of a page that nobody has")
	}
	if s.deaf {
		return errors.New("no copy")
	}
	*to = *from
	return nil
}

// TestAgainstTexts drives tables at random beside plain texts: each reads what it
// wrote, whatever was forked from it, and no page is lost, shared wrongly or counted
// twice.
func TestAgainstTexts(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		pool := &stack{t: t, out: map[*sheet]bool{}}
		var budget backend.Budget
		layout := backend.KeysLayout(1, 1, 2, backend.KVInt8, 500)
		type sequence struct {
			*Table[*sheet]
			text []byte
		}
		var all []*sequence
		check := func() {
			t.Helper()
			pages := map[*sheet]int{}
			for _, s := range all {
				for i, b := range s.text {
					if got := s.At(i / backend.PageTokens)[i%backend.PageTokens]; got != b {
						t.Fatalf("seed %d: token %d is %d, want %d", seed, i, got, b)
					}
				}
				for i := range s.pages {
					if s.Has(i) {
						pages[s.At(i)]++
					}
				}
			}
			if used, _ := budget.Used(); len(pages) != len(pool.out) || used != int64(len(pages))*layout.Keys().PageBytes() {
				t.Fatalf("seed %d: %d pages are in tables, %d out, %d bytes taken", seed, len(pages), len(pool.out), used)
			}
		}
		for range 60 {
			switch k := r.IntN(6); {
			case k == 0 || len(all) == 0:
				all = append(all, &sequence{Table: New(layout, pool, &budget)})
			case k == 1:
				i := r.IntN(len(all))
				all[i].Close()
				all = slices.Delete(all, i, i+1)
			case k == 2:
				s := all[r.IntN(len(all))]
				n := r.IntN(len(s.text) + 1)
				fork, err := s.Fork(n, n+r.IntN(300))
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, &sequence{fork, slices.Clone(s.text[:n])})
			case k == 3:
				s := all[r.IntN(len(all))]
				s.text = s.text[:s.Reach(r.IntN(len(s.text)+1), len(s.text))]
			default:
				s := all[r.IntN(len(all))]
				n := min(r.IntN(150), s.Layout().Slots-len(s.text))
				if err := s.Writable(len(s.text), len(s.text)+n); err != nil {
					t.Fatal(err)
				}
				for range n {
					i := len(s.text)
					s.text = append(s.text, byte(r.IntN(200)))
					s.At(i / backend.PageTokens)[i%backend.PageTokens] = s.text[i]
				}
			}
			check()
		}
		for _, s := range all {
			s.Close()
		}
		all = nil
		check()
	}
}

// A page that cannot be had changes nothing.
func TestRefused(t *testing.T) {
	pool := &stack{t: t, out: map[*sheet]bool{}, most: 3}
	var budget backend.Budget
	layout := backend.KeysLayout(1, 1, 2, backend.KVInt8, 500)
	a := New(layout, pool, &budget)
	lacks := (*backend.MemoryError)(nil)
	if err := a.Reserve(4 * backend.PageTokens); !errors.As(err, &lacks) || !errors.Is(err, errNoPages) || a.Bytes() != 0 || len(pool.out) != 0 {
		t.Errorf("four of three pages: %v, %d bytes held, %d pages out", err, a.Bytes(), len(pool.out))
	}
	if err := a.Writable(0, 2*backend.PageTokens); err != nil {
		t.Fatal(err)
	}
	if err := a.Writable(300, 301); err == nil {
		t.Error("a forward behind what was never written: want an error")
	}
	fork, err := a.Fork(2*backend.PageTokens, 400)
	if err != nil {
		t.Fatal(err)
	}
	pool.deaf = true
	if err := fork.Writable(10, 11); err == nil {
		t.Error("a copy that fails: want an error")
	}
	pool.deaf = false
	if fork.At(0) != a.At(0) || a.pages[0].owners != 2 || len(pool.out) != 2 {
		t.Error("after a copy that failed the page is not shared as it was")
	}
	if err := fork.Writable(10, 70); !errors.As(err, &lacks) {
		t.Errorf("two copies with one page left: %v", err)
	}
	if fork.At(1) != a.At(1) {
		t.Error("the page that could not be copied is lost")
	}
	fork.Close()
	a.Close()
	if used, _ := budget.Used(); used != 0 || len(pool.out) != 0 {
		t.Errorf("%d bytes taken, %d pages out when all is closed", used, len(pool.out))
	}
	for name, err := range map[string]error{
		"reserve": a.Reserve(1), "write": a.Writable(0, 1),
		"fork":   func() error { _, err := a.Fork(0, 1); return err }(),
		"export": func() error { _, err := a.Page(0, nil); return err }(),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s of a closed table: %v", name, err)
		}
	}
}
