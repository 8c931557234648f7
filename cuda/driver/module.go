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
)

// defaultShared is the dynamic shared memory that every kernel may ask for.
const defaultShared = 48 << 10

// Load translates PTX for the device, or takes what the driver's own cache has of it. It
// goes by the driver's libraries, not its modules: those are translated under one lock that
// copies and allocations take, too, these beside each other and beside whatever else uses
// the context (ADR 55). An error carries the translator's log.
func (c *Context) Load(ptx []byte) (*Module, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
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
	m := &Module{ctx: c, entries: entries(ptx), functions: map[string]*Function{}}
	err := c.api.call(&c.api.libraryLoad, uintptr(unsafe.Pointer(&m.handle)), uintptr(unsafe.Pointer(&image[0])),
		uintptr(unsafe.Pointer(&options[0])), uintptr(unsafe.Pointer(&values[0])), uintptr(len(options)), 0, 0, 0)
	if err != nil {
		if log := strings.TrimSpace(cString(&failure[0])); log != "" {
			return nil, fmt.Errorf("cuda: %w\n%s", err, log)
		}
		return nil, c.wrap(err)
	}
	keep(c, c.modules, m)
	return m, nil
}

// warming is a kernel that nobody runs.
const warming = ".version 7.4\n.target sm_80\n.address_size 64\n.visible .entry windrow_warming()\n{\n\tret;\n}\n\x00"

// Warm reads the driver's translator, in the background: on a machine that has just started
// that takes as long as a small kernel. It needs no context, so it may go on while one is made.
func (d *Driver) Warm() { go d.warm() }

func (d *Driver) warm() error {
	image := []byte(warming)
	var library uintptr
	if err := d.api.call(&d.api.libraryLoad, uintptr(unsafe.Pointer(&library)), uintptr(unsafe.Pointer(&image[0])), 0, 0, 0, 0, 0, 0); err != nil {
		return err
	}
	return d.api.call(&d.api.libraryUnload, library)
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
