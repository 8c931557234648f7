package driver

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"unsafe"
)

// Module is a set of kernels, translated for the device.
type Module struct {
	ctx     *Context
	handle  uintptr
	entries map[string]entry

	mu        sync.Mutex
	functions map[string]*Function // those asked for
}

// Function is a kernel of a module.
type Function struct {
	ctx    *Context
	name   string
	handle uintptr
	entry
	shared uint32 // most dynamic shared memory that a launch may ask for
}

// Numbers of CUjit_option and CUfunction_attribute.
const (
	jitInfoLog, jitInfoSize   = 3, 4
	jitErrorLog, jitErrorSize = 5, 6
	functionMaxDynamicShared  = 8
	functionSharedCarveout    = 9
)

// defaultShared is the dynamic shared memory that every kernel may ask for.
const defaultShared = 48 << 10

// Code is PTX that was translated. It belongs to no context.
type Code struct {
	api     *api
	handle  uintptr
	entries map[string]entry
}

// Translate translates PTX, or takes what the driver's own cache has of it. It goes by the
// driver's libraries, not its modules: those are translated under one lock that copies and
// allocations take, too, these beside each other and beside whatever else uses the driver
// (ADR 55), the making of a context included. An error carries the translator's log.
func (d *Driver) Translate(ptx []byte) (*Code, error) { return translate(d.api, ptx) }

func translate(api *api, ptx []byte) (*Code, error) {
	image := append(bytes.Clone(ptx), 0)
	var pins runtime.Pinner
	defer pins.Unpin()
	info, failure := make([]byte, 4<<10), make([]byte, 16<<10)
	pins.Pin(&info[0])
	pins.Pin(&failure[0])
	options := [4]int32{jitInfoLog, jitInfoSize, jitErrorLog, jitErrorSize}
	values := [4]uintptr{
		uintptr(unsafe.Pointer(&info[0])), uintptr(len(info) - 1),
		uintptr(unsafe.Pointer(&failure[0])), uintptr(len(failure) - 1),
	}
	x := &Code{api: api, entries: entries(ptx)}
	err := api.call(&api.libraryLoad, uintptr(unsafe.Pointer(&x.handle)), uintptr(unsafe.Pointer(&image[0])),
		uintptr(unsafe.Pointer(&options[0])), uintptr(unsafe.Pointer(&values[0])), uintptr(len(options)), 0, 0, 0)
	if err != nil {
		if log := strings.TrimSpace(cString(&failure[0])); log != "" {
			return nil, fmt.Errorf("cuda: %w\n%s", err, log)
		}
		return nil, fmt.Errorf("cuda: %w", err)
	}
	return x, nil
}

// Close unloads code that no context has.
func (x *Code) Close() error { return x.api.call(&x.api.libraryUnload, x.handle) }

// Load translates PTX for a context.
func (c *Context) Load(ptx []byte) (*Module, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	code, err := translate(c.api, ptx)
	if err != nil {
		return nil, err
	}
	return c.Adopt(code)
}

// Adopt makes a module of code, which is the context's from then on.
func (c *Context) Adopt(code *Code) (*Module, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	m := &Module{ctx: c, handle: code.handle, entries: code.entries, functions: map[string]*Function{}}
	keep(c, c.modules, m)
	return m, nil
}

// entry is what the PTX says of a kernel.
type entry struct {
	parameters int
	// waits: it waits for the kernel before it, so that it may overlap with it.
	waits bool
}

// entries reads the kernels of PTX. The driver knows what a launch passes as a
// list without a length, and would overlap a kernel that never waits.
func entries(ptx []byte) map[string]entry {
	found := map[string]entry{}
	_, ptx, ok := bytes.Cut(ptx, []byte(".entry "))
	for ok {
		var text []byte
		text, ptx, ok = bytes.Cut(ptx, []byte(".entry "))
		end := bytes.IndexAny(text, "(\r\n{ ")
		if end < 0 {
			continue
		}
		e := entry{waits: bytes.Contains(text, []byte("griddepcontrol.wait"))}
		if body, ok := bytes.CutPrefix(bytes.TrimSpace(text[end:]), []byte("(")); ok {
			list, _, _ := bytes.Cut(body, []byte(")"))
			e.parameters = bytes.Count(list, []byte(".param"))
		}
		found[string(text[:end])] = e
	}
	return found
}

// Function finds a kernel by its name. The same name gives the same Function:
// what AllowShared has allowed holds for all who asked.
func (m *Module) Function(name string) (*Function, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.handle == 0 {
		return nil, errClosed
	}
	if f, ok := m.functions[name]; ok {
		return f, nil
	}
	f := &Function{ctx: m.ctx, name: name, entry: m.entries[name], shared: defaultShared}
	symbol := append([]byte(name), 0)
	var kernel uintptr // of all contexts; the function is that of this one
	err := m.ctx.api.call(&m.ctx.api.libraryKernel, uintptr(unsafe.Pointer(&kernel)), m.handle, uintptr(unsafe.Pointer(&symbol[0])))
	if err == nil {
		err = m.ctx.api.call(&m.ctx.api.kernelFunction, uintptr(unsafe.Pointer(&f.handle)), kernel)
	}
	if err != nil {
		return nil, fmt.Errorf("cuda: kernel %s: %w", name, err)
	}
	m.functions[name] = f
	return f, nil
}

// AllowShared lets launches ask for so many bytes of dynamic shared memory;
// without it they may ask for 48 KiB. It never takes back what was allowed.
func (f *Function) AllowShared(bytes int) error {
	if bytes < 0 || bytes > f.ctx.info.SharedPerBlock {
		return fmt.Errorf("cuda: kernel %s: %d bytes of shared memory; %s gives a block %d", f.name, bytes, f.ctx.info.Name, f.ctx.info.SharedPerBlock)
	}
	if bytes <= int(f.shared) {
		return nil
	}
	if err := f.ctx.api.call(&f.ctx.api.functionSetting, f.handle, functionMaxDynamicShared, uintptr(bytes)); err != nil {
		return fmt.Errorf("cuda: kernel %s: %d bytes of shared memory: %w", f.name, bytes, err)
	}
	f.shared = uint32(bytes)
	return nil
}

// PreferShared has as much of a multiprocessor's memory as there is be shared memory while the kernel runs there, and
// not L1: blocks of other launches that ask for more than this one need not wait until the multiprocessor is idle, and
// its memory split anew. It is a preference.
func (f *Function) PreferShared() error {
	const most = 100 // percent
	if err := f.ctx.api.call(&f.ctx.api.functionSetting, f.handle, functionSharedCarveout, most); err != nil {
		return fmt.Errorf("cuda: kernel %s: the share of shared memory: %w", f.name, err)
	}
	return nil
}

// SharedCarveout is the percentage of that memory that is asked for as shared memory; -1: as the driver likes.
func (f *Function) SharedCarveout() (int, error) {
	if f.ctx.api.functionGetting.address == 0 {
		return 0, fmt.Errorf("cuda: kernel %s: this driver does not say what it asks for", f.name)
	}
	var percent int32
	err := f.ctx.api.call(&f.ctx.api.functionGetting, uintptr(unsafe.Pointer(&percent)), functionSharedCarveout, f.handle)
	return int(percent), err
}

// Close unloads the module; its functions are then gone.
func (m *Module) Close() error {
	if !drop(m.ctx, m.ctx.modules, m) {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	handle := m.handle
	m.handle = 0
	return m.ctx.wrap(m.ctx.api.call(&m.ctx.api.libraryUnload, handle))
}
