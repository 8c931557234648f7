package launch

import (
	"slices"
	"testing"
)

// TestLoaders: what is needed first is loaded first, and what came first of the same rank; all
// of it, however many loaders there are.
func TestLoaders(t *testing.T) {
	var got []int
	l := &loaders{running: maxLoaders, all: true} // none begins
	for i, rank := range []int{2, 0, 1, 0, 3, 1, 0} {
		l.add(load{rank: rank, run: func() { got = append(got, 10*rank+i) }})
	}
	l.run()
	if want := []int{1, 3, 6, 12, 15, 20, 34}; !slices.Equal(got, want) {
		t.Errorf("loaded %v, want %v", got, want)
	}
	const all = 100
	done := make(chan int, all)
	l = &loaders{all: true}
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

// TestLoadRest: patient kernels wait until they may be loaded, or somebody waits for them; those
// that nobody has begun to load are dropped.
func TestLoadRest(t *testing.T) {
	var got []int
	l := &loaders{running: maxLoaders}
	queued := make([]*loading, 5)
	for i := range queued {
		queued[i] = &loading{done: make(chan struct{})}
		l.add(load{queued[i], patient - 2 + i, func() { got = append(got, i) }})
	}
	l.run()
	l.now(queued[3])
	if want := []int{0, 1, 3}; !slices.Equal(got, want) {
		t.Errorf("loaded %v, want %v", got, want)
	}
	l.running = maxLoaders
	l.rest()
	l.run()
	if want := []int{0, 1, 3, 2, 4}; !slices.Equal(got, want) {
		t.Errorf("loaded %v, want %v", got, want)
	}
	l.running = maxLoaders
	late := &loading{done: make(chan struct{})}
	l.add(load{late, 0, func() { t.Error("it was dropped") }})
	l.drop()
	l.run()
	if <-late.done; late.err == nil {
		t.Error("dropped without an error")
	}
}
