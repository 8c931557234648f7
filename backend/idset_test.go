package backend

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestIDSet compares a set with a map, ids past its end included.
func TestIDSet(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		n := r.IntN(300)
		s, m := NewIDSet(n), map[int32]bool{}
		for range r.IntN(20) {
			if n > 0 {
				id := int32(r.IntN(n))
				s.Add(id)
				m[id] = true
			}
		}
		if s.Len() != len(m) {
			t.Fatalf("%d ids of %d", s.Len(), len(m))
		}
		bars := Bars{Limit: int32(r.IntN(310)), Except: int32(r.IntN(300)) - 1}
		some := false
		for id := int32(-2); id < int32(n)+200; id++ {
			if s.Has(id) != m[id] {
				t.Fatalf("id %d of %d: %v", id, n, s.Has(id))
			}
			some = some || m[id] && int(id) < bars.Ids(305) && id != bars.Except
		}
		if s.any(bars, 305) != some {
			t.Fatalf("%v leave some of %v: %v", bars, m, !some)
		}
	}
}

// TestTopOf compares what Finish takes from logits with a full sort: bars and allowed
// ids together, the lower id first on a tie.
func TestTopOf(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	for range 500 {
		z := make([]float32, 1+r.IntN(200))
		for i := range z {
			z[i] = float32(r.IntN(30)) // ties
		}
		bars := Bars{Limit: int32(r.IntN(len(z) + 5)), Except: int32(r.IntN(len(z)+1)) - 1}
		var allowed IDSet
		if r.IntN(2) == 0 {
			allowed = NewIDSet(len(z))
			for range r.IntN(20) {
				allowed.Add(int32(r.IntN(len(z))))
			}
		}
		var want []Candidate
		for id, v := range z {
			if id < bars.Ids(len(z)) && int32(id) != bars.Except && (allowed == nil || allowed.Has(int32(id))) {
				want = append(want, Candidate{int32(id), v})
			}
		}
		slices.SortStableFunc(want, func(a, b Candidate) int { return int(b.Logit - a.Logit) })
		for _, k := range []int{1, 2, 7, 500} {
			if got := TopOf(z, k, bars, allowed); !slices.Equal(got, want[:min(k, len(want))]) {
				t.Fatalf("the best %d: %v, want %v", k, got, want[:min(k, len(want))])
			}
		}
	}
}
