package launch

import (
	"slices"
	"testing"
)

// TestLoaders: what is needed first is loaded first, and what came first of the same rank; all
// of it, however many loaders there are.
func TestLoaders(t *testing.T) {
	var got []int
	l := &loaders{running: maxLoaders} // none begins
	for i, rank := range []int{2, 0, 1, 0, 3, 1, 0} {
		l.add(load{rank: rank, run: func() { got = append(got, 10*rank+i) }})
	}
	l.run()
	if want := []int{1, 3, 6, 12, 15, 20, 34}; !slices.Equal(got, want) {
		t.Errorf("loaded %v, want %v", got, want)
	}
	const all = 100
	done := make(chan int, all)
	l = new(loaders)
	for i := range all {
		l.add(load{rank: i % 7, run: func() { done <- i }})
	}
	seen := map[int]bool{}
	for range all {
		seen[<-done] = true
	}
	if len(seen) != all {
		t.Errorf("%d of %d ran", len(seen), all)
	}
}

// TestLoadNow: who waits for a kernel loads it, where nobody has begun to, and no other.
func TestLoadNow(t *testing.T) {
	var got []int
	l := &loaders{running: maxLoaders}
	queued := make([]*loading, 3)
	for i := range queued {
		queued[i] = &loading{}
		l.add(load{queued[i], 0, func() { got = append(got, i) }})
	}
	l.now(queued[1])
	l.now(queued[1]) // it is not queued any more
	l.run()
	if want := []int{1, 0, 2}; !slices.Equal(got, want) {
		t.Errorf("loaded %v, want %v", got, want)
	}
}
