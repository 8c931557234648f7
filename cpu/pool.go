package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"windrow/cpu/kernels"
)

// spinFor bounds how long an idle worker spins before it parks. A step has
// about eight dispatches a layer, a few microseconds apart: spinning over that
// gap saves the 10-17 % of a mat-vec that waking a goroutine costs, and the
// bound keeps an idle process off the CPU.
const spinFor = 50 * time.Microsecond

// pool runs loops on a fixed set of workers; the caller is one of them.
//
// Workers spin for a bounded time, then park on a channel: a spin without
// bound falls from 0.5 to 6 ms a mat-vec when another process takes a core.
// The caller closes a loop when its items have run out and waits only for the
// workers that joined it, so a worker that wakes late delays nobody.
type pool struct {
	workers int // the caller included
	body    func(worker, item int)
	shares  []share
	// gate is loop number << 32 | open << 31 | workers inside.
	gate   atomic.Uint64
	parked []atomic.Bool
	wake   []chan struct{}
	closed atomic.Bool
	done   sync.WaitGroup
	panic  atomic.Pointer[any]
}

// share is a part of a loop's items, behind each other. Workers begin with their own and
// then help with the others': so from loop to loop a worker has about the same columns of
// what it reads and writes, which its caches hold, and the counters are its own.
type share struct {
	next atomic.Int64
	end  int64
	_    [112]byte // two cache lines, as processors fetch them
}

// mostShares is up to how many workers each has a share of its own: two cores of a Zen 5
// whose cache lines take 250 ns from one to the other gain 3 to 6 % in a small model. Of
// more workers all have one, as 16 cores of a Sapphire Rapids gained nothing by 8 or 16.
const mostShares = 4

const gateOpen = 1 << 31

func newPool(workers int) *pool {
	shares := 1
	if workers <= mostShares {
		shares = workers
	}
	p := &pool{workers: workers, shares: make([]share, shares)}
	p.parked = make([]atomic.Bool, workers)
	p.wake = make([]chan struct{}, workers)
	for w := 1; w < workers; w++ {
		p.wake[w] = make(chan struct{}, 1)
		p.done.Add(1)
		go p.work(w)
	}
	return p
}

// run calls body for items 0..n-1, spread over the workers in shares of neighbours;
// it returns when all are done. body must not depend on which worker runs it
// but for scratch memory. A panic in a worker is raised again here.
func (p *pool) run(n int, body func(worker, item int)) {
	if n <= 0 {
		return
	}
	if p.workers == 1 || n == 1 {
		for i := range n {
			body(0, i)
		}
		return
	}
	p.body = body
	for i := range p.shares {
		p.shares[i].next.Store(int64(n * i / len(p.shares)))
		p.shares[i].end = int64(n * (i + 1) / len(p.shares))
	}
	p.gate.Store((p.gate.Load()>>32+1)<<32 | gateOpen)
	for w := 1; w < p.workers; w++ {
		if p.parked[w].CompareAndSwap(true, false) {
			p.wake[w] <- struct{}{}
		}
	}
	p.loop(0)
	for spins, g := 0, p.gate.And(^uint64(gateOpen)); g&(gateOpen-1) != 0; g = p.gate.Load() {
		if spins++; spins > 2000 {
			runtime.Gosched()
		} else {
			kernels.Pause()
		}
	}
	p.body = nil
	if e := p.panic.Swap(nil); e != nil {
		panic(*e)
	}
}

func (p *pool) loop(worker int) {
	defer func() {
		if e := recover(); e != nil {
			p.panic.CompareAndSwap(nil, &e)
			for i := range p.shares {
				p.shares[i].next.Store(p.shares[i].end)
			}
		}
	}()
	for k := range p.shares {
		s := &p.shares[(worker+k)%len(p.shares)]
		for s.next.Load() < s.end {
			i := s.next.Add(1) - 1
			if i >= s.end {
				break
			}
			p.body(worker, int(i))
		}
	}
}

// apart is how far apart the items are that a worker has one after the other.
func (p *pool) apart() int { return p.workers / len(p.shares) }

func (p *pool) work(worker int) {
	defer p.done.Done()
	seen := uint64(0)
	for {
		g, ok := p.await(worker, seen)
		if !ok {
			return
		}
		seen = g >> 32
		for g&gateOpen != 0 && g>>32 == seen {
			if p.gate.CompareAndSwap(g, g+1) {
				p.loop(worker)
				p.gate.Add(^uint64(0))
				break
			}
			g = p.gate.Load()
		}
	}
}

// await returns the gate once a loop other than seen has begun, and false when
// the pool closes.
func (p *pool) await(worker int, seen uint64) (uint64, bool) {
	for {
		deadline := time.Now().Add(spinFor)
		for spins := 1; ; spins++ {
			if p.closed.Load() {
				return 0, false
			}
			if g := p.gate.Load(); g>>32 != seen {
				return g, true
			}
			kernels.Pause()
			if spins%64 == 0 && time.Now().After(deadline) {
				break
			}
		}
		p.parked[worker].Store(true)
		// The loop may have begun between the last look and the parking.
		if (p.gate.Load()>>32 != seen || p.closed.Load()) && p.parked[worker].CompareAndSwap(true, false) {
			continue
		}
		<-p.wake[worker]
	}
}

func (p *pool) close() {
	if p.closed.Swap(true) {
		return
	}
	for w := 1; w < p.workers; w++ {
		if p.parked[w].CompareAndSwap(true, false) {
			p.wake[w] <- struct{}{}
		}
	}
	p.done.Wait()
}
