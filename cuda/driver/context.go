package driver

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"
)

// errClosed is the error of methods of what has been closed.
var errClosed = errors.New("cuda: used after Close")

// Context is a device's primary context, with an account of what was made in
// it.
type Context struct {
	api     *api
	library *Library
	info    DeviceInfo
	device  uintptr
	handle  uintptr
	current [1]uintptr // the arguments of cuCtxSetCurrent, never changed
	overlap bool       // launches may overlap

	mu        sync.Mutex
	closed    bool
	memory    map[Ptr]int // bytes of each allocation
	allocated int64
	pinned    map[*Pinned]struct{}
	modules   map[*Module]struct{}
	streams   map[*Stream]struct{}
	events    map[*Event]struct{}
	graphs    map[*Graph]struct{}
}

// NewContext retains the primary context of a device of compute capability
// 8.0 or later. It is current nowhere until it is entered.
func (d *Driver) NewContext(ordinal int) (*Context, error) {
	devices, err := d.Devices()
	if err != nil {
		return nil, err
	}
	if ordinal < 0 || ordinal >= len(devices) {
		return nil, fmt.Errorf("%w of number %d: the driver shows %d", ErrNoDevice, ordinal, len(devices))
	}
	info, device, err := d.describe(ordinal)
	if err != nil {
		return nil, fmt.Errorf("cuda: device %d: %w", ordinal, err)
	}
	if info.Major < 8 {
		return nil, fmt.Errorf("cuda: device %d: %s has compute capability %d.%d; need 8.0 or later (Ampere)", ordinal, info.Name, info.Major, info.Minor)
	}
	c := &Context{
		api: d.api, library: d.library, info: info, device: device,
		overlap: info.Major >= 9 && d.version >= overlapVersion && d.api.launchExtended.address != 0,
		memory:  map[Ptr]int{}, pinned: map[*Pinned]struct{}{}, modules: map[*Module]struct{}{},
		streams: map[*Stream]struct{}{}, events: map[*Event]struct{}{}, graphs: map[*Graph]struct{}{},
	}
	if err := d.api.call(&d.api.retain, uintptr(unsafe.Pointer(&c.handle)), device); err != nil {
		return nil, fmt.Errorf("cuda: device %d: %w", ordinal, err)
	}
	c.current[0] = c.handle
	return c, nil
}

// Enter locks the goroutine to its thread and makes the context current there.
// Calls nest; each is undone by one Leave. After a Leave of another context,
// enter this one anew before using it.
func (c *Context) Enter() {
	runtime.LockOSThread()
	// A failure shows at the next call, which finds no context.
	CallBlock(c.api.setCurrent.address, c.current[:])
}

// Leave undoes one Enter.
func (c *Context) Leave() { runtime.UnlockOSThread() }

// Info describes the context's device.
func (c *Context) Info() DeviceInfo { return c.info }

// Symbol is the address of a function of the driver's library, for [Call]. A
// driver may be too old to have it.
func (c *Context) Symbol(name string) (uintptr, error) { return c.library.Symbol(name) }

// Synchronize waits for all work of the context.
func (c *Context) Synchronize() error {
	if err := c.check(); err != nil {
		return err
	}
	return c.wrap(c.api.call(&c.api.contextSynchronize))
}

// Close frees what is still there of the context's memory, modules, streams,
// graphs and events, and releases the context.
func (c *Context) Close() error {
	c.Enter()
	defer c.Leave()
	var errs []error
	for _, x := range c.remaining() {
		errs = append(errs, x())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errors.Join(errs...)
	}
	c.closed = true
	errs = append(errs, c.wrap(c.api.call(&c.api.release, c.device)))
	return errors.Join(errs...)
}

// remaining lists how to free what is left, users before what they use.
func (c *Context) remaining() []func() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []func() error
	for x := range c.graphs {
		list = append(list, x.Close)
	}
	for x := range c.events {
		list = append(list, x.Close)
	}
	for x := range c.streams {
		list = append(list, x.Close)
	}
	for x := range c.modules {
		list = append(list, x.Close)
	}
	for x := range c.pinned {
		list = append(list, x.Close)
	}
	for p := range c.memory {
		list = append(list, func() error { return c.Free(p) })
	}
	return list
}

func (c *Context) check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	return nil
}

// wrap names the package and, where there are several, nothing else: the
// driver's own error names the call.
func (c *Context) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cuda: %w", err)
}

// keep enters something into the account, drop removes it and says whether it
// was there.
func keep[T comparable](c *Context, set map[T]struct{}, x T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	set[x] = struct{}{}
}

func drop[T comparable](c *Context, set map[T]struct{}, x T) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := set[x]
	delete(set, x)
	return ok
}
