package metal

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"windrow/metal/driver"
	"windrow/metal/kernels"
)

// DoctorOptions say what Doctor examines.
type DoctorOptions struct {
	// Only, when set, picks the checks by their names.
	Only *regexp.Regexp
	// Patience is how long one check may take, 2 minutes where it is 0.
	Patience time.Duration
	// Report, when set, is told of each fact and each check as it is known.
	Report func(Check)
}

// Check is one fact about the machine, or one test of it.
type Check struct {
	Name   string  `json:"name"`
	Status string  `json:"status"` // StatusOK, StatusFailed or StatusFact
	Detail string  `json:"detail,omitempty"`
	Millis float64 `json:"ms,omitempty"`       // how long a test took
	Rate   float64 `json:"gb_per_s,omitempty"` // what a measurement gave, in 10⁹ bytes a second
}

// The values of Check.Status.
const (
	StatusOK     = "ok"
	StatusFailed = "FAIL"
	StatusFact   = ""
)

const defaultPatience = 2 * time.Minute

// Doctor examines the GPU: it compiles every kernel, runs their self-tests, and
// measures. An error says that there was nothing to examine; failed checks are
// in the list. A check that does not end is failed and ends the examination; its
// thread is then lost to the process.
func Doctor(o DoctorOptions) ([]Check, error) { return examine(openGPU, o) }

func examine(open func() (*gpu, error), o DoctorOptions) ([]Check, error) {
	x := &patient{open: open}
	if err := x.wake(); err != nil {
		return nil, err
	}
	e := &examination{only: o.Only, events: make(chan event)}
	go func() {
		defer close(e.events)
		e.run(x)
		x.close()
	}()
	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	var checks []Check
	for {
		c, ok := e.next(o.Patience)
		if !ok {
			return checks, nil
		}
		checks = append(checks, c)
		if o.Report != nil {
			o.Report(c)
		}
	}
}

// examination is a series of checks, run by a goroutine of its own.
type examination struct {
	only    *regexp.Regexp
	events  chan event
	current string // the check that is running
	lost    bool   // it did not end
}

// event is the beginning of a check, or one that is done.
type event struct {
	begins string
	check  Check
}

// next waits for the next check that is done.
func (e *examination) next(patience time.Duration) (Check, bool) {
	for !e.lost {
		select {
		case v, ok := <-e.events:
			if !ok {
				return Check{}, false
			}
			if e.current = v.begins; v.begins == "" {
				return v.check, true
			}
		case <-time.After(patience):
			e.lost = true
			return Check{Name: e.current, Status: StatusFailed, Detail: fmt.Sprintf("no end after %v; the checks behind it were not run", patience)}, true
		}
	}
	return Check{}, false
}

func (e *examination) fact(name, detail string) {
	e.events <- event{check: Check{Name: name, Status: StatusFact, Detail: detail}}
}

func (e *examination) run(x *patient) {
	i := x.gpu.device.info
	e.fact("system", "macOS "+i.System)
	e.fact("device", fmt.Sprintf("%s, %s, family Apple%d, unified memory: %v", i.Name, i.Architecture, i.Family, i.UnifiedMemory))
	const gib = 1 << 30
	e.fact("limits", fmt.Sprintf("working set %.1f GiB, buffers of %.1f GiB, %d bytes of threadgroup memory",
		float64(i.WorkingSet)/gib, float64(i.MaxBufferLength)/gib, i.ThreadgroupMemory))
	for _, file := range kernels.Names() {
		e.on(x, "compile "+file, func(d *device, c *Check) error { return d.compileAll(file, c) })
	}
	for _, t := range selfTests {
		e.on(x, t.name, func(d *device, _ *Check) error { return t.run(d) })
	}
	e.on(x, "bandwidth", (*device).measureBandwidth)
	e.on(x, "latency", (*device).measureLatency)
	for _, s := range windowShapes {
		e.on(x, s.name(), s.measure)
	}
}

func (e *examination) wanted(name string) bool { return e.only == nil || e.only.MatchString(name) }

// on runs one check of the device. After a failed one the device is opened
// anew.
func (e *examination) on(x *patient, name string, run func(*device, *Check) error) {
	if !e.wanted(name) {
		return
	}
	e.events <- event{begins: name}
	c := Check{Name: name, Status: StatusOK}
	start := time.Now()
	err := x.wake()
	if err == nil {
		left := int64(0)
		closed := x.gpu.do(func() {
			d := x.gpu.device
			before := d.allocated
			err = guarded(func() error { return run(d, &c) })
			left = d.allocated - before
		})
		if err = errors.Join(closed, err); err == nil && left != 0 {
			err = fmt.Errorf("%d bytes of device memory were not freed", left)
		}
	}
	c.Millis = float64(time.Since(start).Microseconds()) / 1000
	if err != nil {
		c.Status, c.Detail = StatusFailed, err.Error()
		x.close()
	}
	e.events <- event{check: c}
}

// guarded makes an error of a panic.
func guarded(run func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return run()
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
func (d *device) compileAll(file string, c *Check) error {
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
