package launch

import (
	"runtime"

	"windrow/cuda/kernels"
)

// Wanted are kernels that launches would load.
type Wanted []kernel

// Gather returns the kernels that launches would load, of which nothing is loaded or
// enqueued.
func (d *Device) Gather(launches func()) (Wanted, error) {
	flash := d.flash // what is said of a kernel that was not loaded is no answer
	d.gathered, d.dry = map[kernel]bool{}, true
	launches()
	var w Wanted
	for k := range d.gathered {
		w = append(w, k)
	}
	d.gathered, d.dry, d.flash = nil, false, flash
	return w, d.Take()
}

// loading is a kernel on its way; f is nil where it could not be loaded.
type loading struct {
	done chan struct{}
	f    *function
}

// maxLoaders bounds the kernels that are loaded in the background at the same time.
const maxLoaders = 16

// Preload begins to load kernels in the background: to translate one takes a driver up to
// half a second. Who launches one waits for it; what cannot be loaded is tried again, and
// reported, then.
//
// Of kernels that the driver translates whole, which keeps uploads waiting, those that are
// not needed soon are left to who launches them.
func (d *Device) Preload(w Wanted, soon bool) {
	if d.loading == nil {
		d.loading, d.loaders = map[entry]*loading{}, make(chan struct{}, min(runtime.GOMAXPROCS(0), maxLoaders))
	}
	for _, k := range w {
		e := entry{k.file, k.name}
		if d.functions[e] != nil || d.loading[e] != nil || !soon && d.isWhole(k) {
			continue
		}
		l := &loading{done: make(chan struct{})}
		d.loading[e] = l
		by := &Device{Context: d.Context, Info: d.Info, Code: d.Code}
		go func() {
			defer close(l.done)
			d.loaders <- struct{}{}
			defer func() { <-d.loaders }()
			by.Context.Enter()
			defer by.Context.Leave()
			l.f, _ = by.translate(k)
		}()
	}
}

// isWhole reports whether a kernel is translated as a whole program.
func (d *Device) isWhole(k kernel) bool {
	image, err := kernels.PTX(k.file, k.name, d.Info.Major, d.Info.Minor)
	return err == nil && whole(image)
}

// preloaded waits for a kernel that is on its way; nil: it is not, or was refused.
func (d *Device) preloaded(e entry) *function {
	l := d.loading[e]
	if l == nil {
		return nil
	}
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
