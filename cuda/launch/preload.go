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

	"windrow/cuda/driver"
	"windrow/cuda/kernels"
)

// Wanted are kernels that launches would load.
type Wanted []kernel

// Gather returns the kernels that launches would have to load, or to wait for. Nothing is
// loaded or enqueued.
func (d *Device) Gather(launches func()) (w Wanted, err error) {
	flash := d.flash // what is said of a kernel that was not loaded is no answer
	d.gathered = map[kernel]bool{}
	err = d.Rehearse(launches)
	w = slices.SortedFunc(maps.Keys(d.gathered), func(a, b kernel) int {
		return cmp.Or(strings.Compare(a.file, b.file), strings.Compare(a.name, b.name), cmp.Compare(a.shared, b.shared))
	})
	if d.gathered = nil; len(w) > 0 {
		d.flash = flash
	}
	return w, err
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

// Begun is a kernel that is translated while a device is opened.
type Begun struct {
	kernel
	done chan struct{}
	code *driver.Code
	err  error
}

// Begin begins to translate, before a device is open, the kernel that most models want and that
// takes longest: attention of prompts by warpgroups. On a device without it it is a small one:
// on a machine that has just started, reading the translator takes as long as a kernel. A
// device receives it, or it is dropped. Where there is no such device it is nil: who opens it
// will say so.
func Begin(d *driver.Driver, ordinal int) *Begun {
	devices, err := d.Devices()
	if err != nil || ordinal < 0 || ordinal >= len(devices) {
		return nil
	}
	major, minor := devices[ordinal].Major, devices[ordinal].Minor
	b := &Begun{kernel: kernel{file: "rows", name: "rms_norm"}, done: make(chan struct{})}
	if major == 9 && minor == 0 {
		b.kernel = flashHopper(128).kernel
	}
	go func() {
		defer close(b.done)
		var image []byte
		if image, b.err = kernels.PTX(b.file, b.name, major, minor); b.err == nil {
			b.code, b.err = d.Translate(image)
		}
	}()
	return b
}

// Drop waits for what nobody receives, and unloads it.
func (b *Begun) Drop() {
	if b == nil {
		return
	}
	if <-b.done; b.code != nil {
		b.code.Close()
	}
}

// Receive takes what was begun before the device was open.
func (d *Device) Receive(b *Begun) {
	if b == nil {
		return
	}
	l := d.load(entry{b.file, b.name})
	go func() {
		defer close(l.done)
		if <-b.done; b.err != nil {
			l.err = b.err
			return
		}
		d.Context.Enter()
		defer d.Context.Leave()
		m, err := d.Context.Adopt(b.code)
		if err != nil {
			l.err = errors.Join(err, b.code.Close())
			return
		}
		l.f, l.err = d.functionOf(m, b.kernel)
	}()
}

// maxLoaders bounds the kernels that are loaded in the background at the same time, as three
// quarters of the processors do: weights need some to arrive, too.
const maxLoaders = 12

// patient is the rank from which on kernels wait until weights have arrived: while many are
// translated, those that the first prompt waits for take longer, and so do weights.
const patient = 2

// loaders load kernels in the background, those first that are needed first.
type loaders struct {
	mu      sync.Mutex
	queue   []load // by rank, then as they came
	running int
	all     bool // patient ones, too
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
	l.begin()
}

// begin begins to load what may be loaded now, by one more loader at most.
func (l *loaders) begin() {
	if l.ready() && l.running < max(1, min(runtime.GOMAXPROCS(0)*3/4, maxLoaders)) {
		l.running++
		go l.run()
	}
}

func (l *loaders) ready() bool { return len(l.queue) > 0 && (l.all || l.queue[0].rank < patient) }

// rest lets all be loaded.
func (l *loaders) rest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = true
	for range l.queue {
		l.begin()
	}
}

// drop forgets what nobody has begun to load.
func (l *loaders) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range l.queue {
		q.err = errDropped
		close(q.done)
	}
	l.queue = nil
}

var errDropped = errors.New("cuda: the device is closed")

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
	for l.ready() {
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
//
// Those of rank 2 and more wait until PreloadRest, or until one of them is launched.
func (d *Device) Preload(w Wanted, rank int) {
	for _, k := range w {
		e := entry{k.file, k.name}
		if d.functions[e] != nil || d.loading[e] != nil {
			continue
		}
		l := d.load(e)
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

// load enters a kernel that is to be loaded.
func (d *Device) load(e entry) *loading {
	l := &loading{done: make(chan struct{})}
	d.loading[e] = l
	return l
}

// PreloadRest goes on with the kernels that waited for weights to arrive, and has later ones
// wait no more.
func (d *Device) PreloadRest() { d.loaders.rest() }

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

// awaitLoading waits until nothing is on its way. What was not begun is not.
func (d *Device) awaitLoading() {
	d.loaders.drop()
	for e := range d.loading {
		d.preloaded(e)
	}
}

// Kernels is how many have been loaded or are on their way.
func (d *Device) Kernels() int { return len(d.functions) + len(d.loading) }
