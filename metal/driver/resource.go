package driver

// resource is an object that command buffers use without retaining it: while
// one does, Release waits for its end.
type resource struct {
	rt       *Runtime
	id       uintptr
	user     *CommandBuffer // the last that took it
	uses     int            // command buffers that are not done with it
	released bool
}

// Release gives the object up. It must not be used any more; what has been
// encoded with it still may run.
func (o *resource) Release() {
	if o.id == 0 || o.released {
		return
	}
	o.released = true
	o.drop(0)
}

// drop ends n uses.
func (o *resource) drop(n int) {
	if o.uses -= n; o.uses == 0 && o.released {
		o.rt.send(o.id, selRelease)
		o.id = 0
	}
}
