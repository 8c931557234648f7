package cpu

import (
	"sync/atomic"
	"testing"
	"time"
)

func TestPoolRunsEachItemOnce(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 8} {
		p := newPool(workers)
		for round := range 2000 {
			n := round % 37
			counts := make([]atomic.Int32, n)
			plain := make([]int, n) // the race detector watches these
			p.run(n, func(worker, i int) {
				if worker < 0 || worker >= workers {
					t.Errorf("worker %d of %d", worker, workers)
				}
				counts[i].Add(1)
				plain[i]++
			})
			for i := range counts {
				if counts[i].Load() != 1 || plain[i] != 1 {
					t.Fatalf("%d workers, round %d: item %d ran %d times", workers, round, i, counts[i].Load())
				}
			}
		}
		p.close()
		p.close()
	}
}

// Workers park between loops and wake for the next one.
func TestPoolParks(t *testing.T) {
	p := newPool(3)
	defer p.close()
	for range 5 {
		time.Sleep(20 * spinFor)
		for w := 1; w < 3; w++ {
			deadline := time.Now().Add(time.Minute)
			for !p.parked[w].Load() {
				if time.Now().After(deadline) {
					t.Fatal("an idle worker does not park")
				}
				time.Sleep(time.Millisecond)
			}
		}
		var n atomic.Int32
		p.run(100, func(_, _ int) { n.Add(1) })
		if n.Load() != 100 {
			t.Fatalf("%d of 100 items ran", n.Load())
		}
	}
}

// A panic in any worker reaches the caller, and the pool still works.
func TestPoolPanic(t *testing.T) {
	p := newPool(4)
	defer p.close()
	for at := range 20 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a panic was lost")
				}
			}()
			p.run(20, func(_, i int) {
				if i == at {
					panic("planned")
				}
			})
		}()
		var n atomic.Int32
		p.run(50, func(_, _ int) { n.Add(1) })
		if n.Load() != 50 {
			t.Fatalf("%d of 50 items ran after a panic", n.Load())
		}
	}
}
