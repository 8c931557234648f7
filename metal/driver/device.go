package driver

import (
	"errors"
	"fmt"
)

// ErrNoDevice says that the machine has no GPU that this package can use.
var ErrNoDevice = errors.New("metal: no usable GPU")

// Info describes a device.
type Info struct {
	Name         string
	Architecture string // such as "applegpu_g13g"
	// Family is the newest of Metal's families Apple1, Apple2, ... that the
	// device belongs to: 7 is the M1, 8 the M2, 9 the M3 and M4.
	Family            int
	System            string // the version of macOS, in words
	MaxBufferLength   int    // bytes of one buffer
	WorkingSet        int    // bytes that the GPU can use without slowing down
	ThreadgroupMemory int    // bytes a threadgroup
	UnifiedMemory     bool   // the CPU and the GPU share their memory
}

// Device is a GPU with a command queue.
type Device struct {
	rt        *Runtime
	id, queue uintptr
	info      Info
}

const (
	familyApple1  = 1001 // MTLGPUFamilyApple1; Apple2 is the next, and so on
	newestFamily  = 20   // no family of a higher number is asked for
	neededFamily  = 7    // simdgroup matrices
	systemMessage = "macOS 14 or later is needed"
)

// OpenDevice opens the default GPU, or the first where there is no default (in
// a process without a window server there may be none). Errors: [ErrNoDevice],
// also for a GPU older than the M1 and for a system before macOS 14.
func (r *Runtime) OpenDevice() (*Device, error) {
	d := &Device{rt: r}
	var err error
	r.Pool(func() {
		if d.id = r.firstDevice(); d.id == 0 {
			err = fmt.Errorf("%w on this machine", ErrNoDevice)
			return
		}
		d.describe()
		switch {
		case d.info.Architecture == "":
			err = fmt.Errorf("%w: this is macOS %s; %s", ErrNoDevice, d.info.System, systemMessage)
		case d.info.Family < neededFamily:
			err = fmt.Errorf("%w: %s is no Apple GPU of the M1 or later", ErrNoDevice, d.info.Name)
		default:
			if d.queue = r.send(d.id, selNewCommandQueue); d.queue == 0 {
				err = fmt.Errorf("metal: %s gives no command queue", d.info.Name)
			}
		}
	})
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// firstDevice returns a device that the caller owns, or nil.
func (r *Runtime) firstDevice() uintptr {
	if id := r.api.SystemDefaultDevice(); id != 0 {
		return id
	}
	all := r.api.CopyAllDevices()
	if all == 0 {
		return 0
	}
	defer r.send(all, selRelease)
	if r.send(all, selCount) == 0 {
		return 0
	}
	return r.send(r.send(all, selObjectAtIndex, 0), selRetain)
}

func (d *Device) describe() {
	r := d.rt
	d.info = Info{
		Name:              r.text(r.send(d.id, selName)),
		System:            r.text(r.send(r.send(r.classes[classProcessInfo], selProcessInfo), selSystemVersion)),
		MaxBufferLength:   int(r.send(d.id, selMaxBufferLength)),
		WorkingSet:        int(r.send(d.id, selRecommendedMaxWorkingSetSize)),
		ThreadgroupMemory: int(r.send(d.id, selMaxThreadgroupMemoryLength)),
		UnifiedMemory:     r.ask(d.id, selHasUnifiedMemory),
	}
	for n := newestFamily; n > 0 && d.info.Family == 0; n-- {
		if r.ask(d.id, selSupportsFamily, uintptr(familyApple1+n-1)) {
			d.info.Family = n
		}
	}
	// The message came with macOS 14, as did the version of the language that
	// the kernels are written in.
	if r.responds(d.id, selArchitecture) {
		d.info.Architecture = r.text(r.send(r.send(d.id, selArchitecture), selName))
	}
}

// Info describes the device.
func (d *Device) Info() Info { return d.info }

// Close releases the device and its queue. Buffers, libraries and pipelines
// must have been released.
func (d *Device) Close() {
	for _, id := range []uintptr{d.queue, d.id} {
		if id != 0 {
			d.rt.send(id, selRelease)
		}
	}
	d.id, d.queue = 0, 0
}
