package metal

import (
	"errors"
	"fmt"
	"time"

	"windrow/backend/doctor"
	"windrow/metal/driver"
	"windrow/metal/kernels"
)

// Doctor examines the GPU: it compiles every kernel, runs their self-tests, and
// measures. An error says that there was nothing to examine; failed checks are in
// the list.
func Doctor(o doctor.Options) ([]doctor.Check, error) { return examine(openGPU, o) }

func examine(open func() (*gpu, error), o doctor.Options) ([]doctor.Check, error) {
	x := &patient{open: open}
	if err := x.wake(); err != nil {
		return nil, err
	}
	return doctor.Examine(o, func(e *doctor.Examination) {
		(&examination{e}).run(x)
		x.close()
	}), nil
}

// examination is that of a GPU.
type examination struct{ *doctor.Examination }

func (e *examination) run(x *patient) {
	i := x.gpu.device.info
	e.Fact("system", "macOS "+i.System)
	e.Fact("device", fmt.Sprintf("%s, %s, family Apple%d, unified memory: %v", i.Name, i.Architecture, i.Family, i.UnifiedMemory))
	const gib = 1 << 30
	e.Fact("limits", fmt.Sprintf("working set %.1f GiB, buffers of %.1f GiB, %d bytes of threadgroup memory",
		float64(i.WorkingSet)/gib, float64(i.MaxBufferLength)/gib, i.ThreadgroupMemory))
	for _, file := range kernels.Names() {
		e.on(x, "compile "+file, func(d *device, c *doctor.Check) error { return d.compileAll(file, c) })
	}
	for _, t := range selfTests {
		e.on(x, t.name, func(d *device, _ *doctor.Check) error { return t.run(d) })
	}
	e.on(x, "bandwidth", (*device).measureBandwidth)
	e.on(x, "latency", (*device).measureLatency)
	for _, s := range windowShapes {
		e.on(x, s.name(), s.measure)
	}
}

// on runs one check of the device. After a failed one the device is opened
// anew.
func (e *examination) on(x *patient, name string, run func(*device, *doctor.Check) error) {
	if !e.Wanted(name) {
		return
	}
	ok := e.Test(name, func(c *doctor.Check) error {
		if err := x.wake(); err != nil {
			return err
		}
		var err error
		left := int64(0)
		closed := x.gpu.do(func() {
			d := x.gpu.device
			before := d.allocated
			err = doctor.Guarded(func() error { return run(d, c) })
			left = d.allocated - before
		})
		if err = errors.Join(closed, err); err == nil && left != 0 {
			err = fmt.Errorf("%d bytes of device memory were not freed", left)
		}
		return err
	})
	if !ok {
		x.close()
	}
}

// patient is a gpu that is opened when it is needed.
type patient struct {
	open func() (*gpu, error)
	gpu  *gpu
}

func (x *patient) wake() (err error) {
	if x.gpu == nil {
		x.gpu, err = x.open()
	}
	return err
}

func (x *patient) close() {
	if x.gpu != nil {
		_ = x.gpu.close() // after a failed test nothing better is to be expected
		x.gpu = nil
	}
}

// compileAll compiles a library and makes each of its kernels ready to run. The
// detail says what its tightest kernel allows.
func (d *device) compileAll(file string, c *doctor.Check) error {
	start := time.Now()
	l, err := d.library(file)
	// A report is worth most with all that Apple's compiler says.
	if refused := new(driver.CompileError); errors.As(err, &refused) {
		return fmt.Errorf("%w; %s", err, refused.Log)
	}
	if err != nil {
		return err
	}
	least, tightest := 0, ""
	names := l.Kernels()
	if len(names) == 0 {
		return errors.New("no kernel in it")
	}
	var failed []error
	for _, name := range names {
		p, err := d.pipeline(file, name)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		if least == 0 || p.MaxThreads() < least {
			least, tightest = p.MaxThreads(), name
		}
	}
	c.Detail = fmt.Sprintf("%d kernels in %.2f s, the fewest threads: %d of %s", len(names), time.Since(start).Seconds(), least, tightest)
	return errors.Join(failed...)
}
