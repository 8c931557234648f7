package bench

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestQueueBound is the least that the time to a first token can be at half the saturated
// rate, whoever goes first: docs/performance.md has its table. Requests come at
// random times (Poisson); each has a prompt that takes 1 and answers that take nothing,
// so that a prompt waits for other prompts alone, and has the whole machine.
//
//   - in turn: prompts go in the order in which they came;
//   - in time: the most of any order, and with any foresight, that have their first token
//     within twice a prompt's time. Prompts are alike, so who came first should be first,
//     and who can no longer be in time may as well be last: that leaves the machine free
//     the soonest for those who can.
func TestQueueBound(t *testing.T) {
	const requests = 400_000
	for _, c := range []struct {
		load          float64 // of prompts: the part of the time that they take
		p99           float64 // in turn, in prompts' times
		inTime        float64 // of all, at most
		within, found float64 // what may be off
	}{
		{.5, 4.25, .904, .1, .003},
		{.4, 3.5, .935, .1, .003},
		{.33, 3.05, .954, .1, .003},
		{.25, 2.65, .972, .1, .002},
		{.145, 2.05, .99, .05, .002},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		var now, free, freed float64
		var times []float64
		inTime := 0
		for range requests {
			now += r.ExpFloat64() / c.load
			free = max(free, now) + 1
			times = append(times, free-now)
			if end := max(freed, now) + 1; end-now <= 2 {
				freed = end
				inTime++
			}
		}
		slices.Sort(times)
		p99, share := times[requests*99/100], float64(inTime)/requests
		t.Logf("prompts take %.3f of the time: p99 in turn %.2f, at most %.1f %% in time", c.load, p99, 100*share)
		if p99 < c.p99-c.within || p99 > c.p99+c.within || share < c.inTime-c.found || share > c.inTime+c.found {
			t.Errorf("at %.3f: p99 %.3f and %.4f in time, documented %.2f and %.3f", c.load, p99, share, c.p99, c.inTime)
		}
	}
}
