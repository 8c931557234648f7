package launch

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"windrow/cuda/kernels"
)

// Wanted are kernels that launches would load.
type Wanted []kernel

// Gather returns the kernels that launches would load, of which nothing is loaded or
// enqueued.
func (d *Device) Gather(launches func()) (w Wanted, err error) {
	flash := d.flash // what is said of a kernel that was not loaded is no answer
	d.gathered = map[kernel]bool{}
	err = d.Rehearse(launches)
	w = slices.SortedFunc(maps.Keys(d.gathered), func(a, b kernel) int {
		return cmp.Or(strings.Compare(a.file, b.file), strings.Compare(a.name, b.name), cmp.Compare(a.shared, b.shared))
	})
	d.gathered, d.flash = nil, flash
	return w, err
}

// Likely are kernels that most models want, and that take the longest to translate.
func (d *Device) Likely() Wanted {
	if d.openHopper() == nil {
		return nil
	}
	return Wanted{flashHopper().kernel}
}

// KernelsOf are all kernels of a file.
func (d *Device) KernelsOf(file string) (w Wanted, err error) {
	names, err := kernels.Names(file, d.Info.Major, d.Info.Minor)
	for _, name := range names {
		w = append(w, kernel{file: file, name: name})
	}
	return w, err
}

// loading is a kernel on its way. The rest is known when it is done.
type loading struct {
	done chan struct{}
	f    *function // nil: err says why
	err  error
	took time.Duration
}

// maxLoaders bounds the kernels that are loaded in the background at the same time, as three
// quarters of the processors do: weights need some to arrive, too.
const maxLoaders = 12

// loaders load kernels in the background, those first that are needed first.
type loaders struct {
	mu      sync.Mutex
	queue   []load // by rank, then as they came
	running int
}

type load struct {
	*loading
	rank int
	run  func()
}

func (l *loaders) add(next load) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := len(l.queue)
	for at > 0 && l.queue[at-1].rank > next.rank {
		at--
	}
	l.queue = slices.Insert(l.queue, at, next)
	if l.running < max(1, min(runtime.GOMAXPROCS(0)*3/4, maxLoaders)) {
		l.running++
		go l.run()
	}
}

// now loads what is still queued: who waits for it need not wait for the others.
func (l *loaders) now(which *loading) {
	l.mu.Lock()
	at := slices.IndexFunc(l.queue, func(q load) bool { return q.loading == which })
	if at < 0 {
		l.mu.Unlock()
		return
	}
	next := l.queue[at]
	l.queue = slices.Delete(l.queue, at, at+1)
	l.mu.Unlock()
	next.run()
}

func (l *loaders) run() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) > 0 {
		next := l.queue[0]
		l.queue = l.queue[1:]
		l.mu.Unlock()
		next.run()
		l.mu.Lock()
	}
	l.running--
}

// Preload begins to load kernels in the background: to translate one takes a driver up to
// half a second. Who launches one waits for it; what cannot be loaded is tried again, and
// reported, then. Those of a lower rank are loaded before the others that have not begun.
func (d *Device) Preload(w Wanted, rank int) {
	if d.loading == nil {
		d.loading, d.loaders = map[entry]*loading{}, new(loaders)
	}
	for _, k := range w {
		e := entry{k.file, k.name}
		if d.functions[e] != nil || d.loading[e] != nil {
			continue
		}
		l := &loading{done: make(chan struct{})}
		d.loading[e] = l
		by := &Device{Context: d.Context, Info: d.Info, timeline: d.timeline}
		d.loaders.add(load{l, rank, func() {
			defer close(l.done)
			by.Context.Enter()
			defer by.Context.Leave()
			start := time.Now()
			l.f, l.err = by.translate(k)
			l.took = time.Since(start)
		}})
	}
}

// Await waits for kernels that Preload began to load, and says what took the longest.
func (d *Device) Await(w Wanted) (detail string, err error) {
	slowest, most := "", time.Duration(0)
	for _, k := range w {
		e := entry{k.file, k.name}
		l := d.loading[e]
		if l == nil {
			continue
		}
		if f := d.preloaded(e); f != nil {
			d.functions[e] = f
		}
		err = errors.Join(err, l.err)
		if l.took > most {
			slowest, most = k.name, l.took
		}
	}
	return fmt.Sprintf("%d kernels, the slowest %s, %.2f s", len(w), slowest, most.Seconds()), err
}

// preloaded waits for a kernel that is on its way; nil: it is not, or was refused.
func (d *Device) preloaded(e entry) *function {
	l := d.loading[e]
	if l == nil {
		return nil
	}
	d.loaders.now(l)
	<-l.done
	delete(d.loading, e)
	return l.f
}

// awaitLoading waits until nothing is on its way.
func (d *Device) awaitLoading() {
	for e := range d.loading {
		d.preloaded(e)
	}
}

// Kernels is how many have been loaded or are on their way.
func (d *Device) Kernels() int { return len(d.functions) + len(d.loading) }
