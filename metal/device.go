package metal

import (
	"errors"
	"fmt"

	"windrow/metal/driver"
	"windrow/metal/kernels"
)

// device is one GPU with the kernels loaded so far. It belongs to one goroutine
// at a time; a gpu gives it one.
type device struct {
	rt      *driver.Runtime
	metal   *driver.Device
	info    driver.Info
	source  func(file string) (string, error) // of kernels
	nothing *driver.Buffer                    // bound where a view has no buffer

	libraries map[string]*driver.Library
	pipelines map[entry]*driver.Pipeline

	allocated int64   // bytes that alloc gave and free did not take back
	seconds   float64 // of the GPU, in the last encode
}

// entry names a kernel: file is the name of a source without its suffix.
type entry struct{ file, kernel string }

// openDevice opens this machine's GPU.
func openDevice() (*device, error) {
	rt, err := driver.Open()
	if err != nil {
		return nil, err
	}
	return newDevice(rt)
}

// newDevice opens the GPU of a runtime.
func newDevice(rt *driver.Runtime) (*device, error) {
	m, err := rt.OpenDevice()
	if err != nil {
		return nil, err
	}
	d := &device{
		rt: rt, metal: m, info: m.Info(), source: kernels.Source,
		libraries: map[string]*driver.Library{}, pipelines: map[entry]*driver.Pipeline{},
	}
	if d.nothing, err = m.NewBuffer(16); err != nil {
		m.Close()
		return nil, err
	}
	return d, nil
}

// alloc reserves device memory with undefined contents.
func (d *device) alloc(bytes int, e elem) (view, error) {
	b, err := d.metal.NewBuffer(bytes)
	if err != nil {
		return view{}, err
	}
	d.allocated += int64(bytes)
	return view{buffer: b, elem: e}, nil
}

// wrap makes device memory of memory that stays mapped and in place until it is
// freed: whole pages of driver.PageSize.
func (d *device) wrap(memory []byte, e elem) (view, error) {
	b, err := d.metal.NewBufferNoCopy(memory)
	if err != nil {
		return view{}, err
	}
	d.allocated += int64(len(memory))
	return view{buffer: b, elem: e}, nil
}

// free gives back the buffer that v lies in. A view without one is ignored.
func (d *device) free(v view) {
	if v.buffer != nil {
		d.allocated -= int64(v.buffer.Length())
		v.buffer.Release()
	}
}

// bytes is the memory from v to the end of its buffer.
func (v view) bytes() []byte { return v.buffer.Bytes()[v.offset:] }

// encode hands the dispatches of f to the GPU in one command buffer and waits.
func (d *device) encode(f func(e encoder)) error {
	d.seconds = 0
	commands, err := d.submit(f)
	if err != nil {
		return err
	}
	return d.wait(commands)
}

// submit hands the dispatches of f to the GPU in one command buffer. The first
// error of any of them stops all: nothing runs then.
func (d *device) submit(f func(e encoder)) (commands *driver.CommandBuffer, err error) {
	d.rt.Pool(func() {
		c, failed := d.metal.NewCommandBuffer()
		if err = failed; err != nil {
			return
		}
		defer func() {
			if commands == nil { // after an error, or a panic of f
				c.Discard()
			}
		}()
		e := deviceEncoder{device: d}
		if e.list, err = c.Encoder(); err != nil {
			return
		}
		f(&e)
		if err = e.err; err != nil {
			return
		}
		e.list.End()
		c.Commit()
		commands = c
	})
	return commands, err
}

// wait waits for what was submitted.
func (d *device) wait(commands *driver.CommandBuffer) error {
	times, err := commands.Wait()
	d.seconds = times.End - times.Start
	return err
}

// pipeline finds a kernel; a source is compiled when one of its kernels is first
// asked for.
func (d *device) pipeline(file, kernel string) (*driver.Pipeline, error) {
	if p, ok := d.pipelines[entry{file, kernel}]; ok {
		return p, nil
	}
	l, err := d.library(file)
	if err != nil {
		return nil, err
	}
	p, err := l.Pipeline(kernel)
	if err != nil {
		return nil, err
	}
	d.pipelines[entry{file, kernel}] = p
	return p, nil
}

// library compiles a source when it is first asked for.
func (d *device) library(file string) (*driver.Library, error) {
	if l, ok := d.libraries[file]; ok {
		return l, nil
	}
	source, err := d.source(file)
	if err != nil {
		return nil, err
	}
	l, err := d.metal.NewLibrary(source, driver.LibraryOptions{Name: file + ".metal"})
	if err != nil {
		return nil, err
	}
	d.libraries[file] = l
	return l, nil
}

// close frees the kernels and the device. Memory of alloc that was not freed is
// an error.
func (d *device) close() error {
	for _, p := range d.pipelines {
		p.Release()
	}
	for _, l := range d.libraries {
		l.Release()
	}
	d.nothing.Release()
	d.metal.Close()
	if d.allocated != 0 {
		return errors.New("metal: closed with " + fmt.Sprint(d.allocated) + " bytes of device memory in use")
	}
	return nil
}
