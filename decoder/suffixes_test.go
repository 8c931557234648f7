package decoder

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"windrow/internal/testhelp"
)

// longestEarlier is how long the longest suffix of text[:n] is that occurs in text at a
// place from from on that ends before end, by trying all.
func longestEarlier(text []int32, from, end int) (best int) {
	n := len(text)
	for e := from; e < end; e++ {
		k := 0
		for k <= e-from && text[e-k] == text[n-1-k] {
			k++
		}
		best = max(best, k)
	}
	return best
}

// checkHistory compares a history with a scan at every token: the longest suffix that
// occurs earlier within the automaton of the newest tokens or within the one before it,
// and that the place that is told is one where it occurs.
func checkHistory(t *testing.T, text []int32, limit int) {
	t.Helper()
	h := newHistory(limit)
	for i, token := range text {
		h.extend(token)
		seen := text[:i+1]
		base := i / limit * limit
		want := 0
		if base > 0 {
			want = longestEarlier(seen, base-limit, base)
		}
		// The suffix that the newest automaton can know lies within it.
		now := longestEarlier(seen[base:], 0, len(seen)-base-1)
		if want = max(want, now); h.length != want {
			t.Fatalf("%v of limit %d: the longest earlier suffix has %d tokens, a scan says %d", seen, limit, h.length, want)
		}
		if h.length == 0 {
			continue
		}
		if h.end >= i || !slices.Equal(seen[h.end+1-h.length:h.end+1], seen[len(seen)-h.length:]) {
			t.Fatalf("%v of limit %d: %d tokens are said to end at %d", seen, limit, h.length, h.end)
		}
		for j := max(0, base-limit); j <= i; j++ {
			if x, ok := h.at(j); !ok || x != text[j] {
				t.Fatalf("%v of limit %d: token %d is %d (%t)", seen, limit, j, x, ok)
			}
		}
		if n, e := len(h.now.states), len(h.now.edges); n > 2*limit+1 || e > 3*limit+3 {
			t.Fatalf("%d states and %d edges for %d tokens", n, e, limit)
		}
	}
}

func TestHistory(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 80))
		text := make([]int32, 1+r.IntN(80))
		for i := range text {
			text[i] = int32(r.IntN(1 + int(seed)%5))
			if seed%3 == 0 && i > 10 && r.IntN(8) > 0 {
				text[i] = text[i-7]
			}
		}
		checkHistory(t, text, []int{1, 3, 16, 1000}[r.IntN(4)])
	}
}

func FuzzHistory(f *testing.F) {
	f.Add([]byte("abcabcabcabd"), byte(3))
	f.Add([]byte("aaaaaaaaaaaa"), byte(1))
	f.Add([]byte("to be or not to be, that is to be"), byte(200))
	f.Fuzz(func(t *testing.T, text []byte, limit byte) {
		ids := make([]int32, min(len(text), 200))
		for i := range ids {
			ids[i] = int32(text[i])
		}
		checkHistory(t, ids, 1+int(limit))
	})
}

// TestHistoryGrows: time and memory are linear in the text, whatever it is.
func TestHistoryGrows(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 81))
	for name, next := range map[string]func(i int) int32{
		"random":   func(int) int32 { return r.Int32N(150_000) },
		"one":      func(int) int32 { return 7 },
		"two":      func(int) int32 { return r.Int32N(2) },
		"repeated": func(i int) int32 { return int32(mix(uint64(i%997)) % 50_000) },
	} {
		const n = 60_000
		h := newHistory(1 << 15)
		each := testhelp.Took(func() {
			for i := range n {
				h.extend(next(i))
			}
		}) / n
		t.Logf("%s: %v a token, %d states, %d edges", name, each, len(h.now.states), len(h.now.edges))
		if each > 20*time.Microsecond { // some 0.2 µs on a quiet machine
			t.Errorf("%s: %v a token", name, each)
		}
	}
}

func BenchmarkHistory(b *testing.B) {
	h, i := newHistory(lookupTokens), 0
	b.ReportAllocs()
	for b.Loop() {
		h.extend(int32(mix(uint64(i%5000)) % 5000))
		i++
	}
}
