package cuda

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"windrow/cuda/driver"
	"windrow/cuda/kernels"
)

// DoctorOptions say what Doctor examines.
type DoctorOptions struct {
	// Library is the driver's library; "" searches for it.
	Library string
	// Only, when set, picks the tests and measurements by their names.
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

// ErrNoDevice is what Doctor's and New's errors wrap where the driver shows no
// GPU.
var ErrNoDevice = driver.ErrNoDevice

const defaultPatience = 2 * time.Minute

// Doctor examines the driver and every GPU: it loads all kernels, runs their
// self-tests, and measures copies. An error says that there was nothing to
// examine; failed checks are in the list. A check that does not end is failed
// and ends the examination; its thread is then lost to the process.
func Doctor(o DoctorOptions) ([]Check, error) {
	drv, err := driver.Open(driver.Options{Library: o.Library})
	if err != nil {
		return nil, err
	}
	devices, err := drv.Devices()
	if err != nil {
		return nil, err
	}
	e := &examination{only: o.Only, events: make(chan event)}
	go func() {
		defer close(e.events)
		e.run(drv, devices)
	}()
	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	var checks []Check
	for {
		c, ok := e.next(o.Patience)
		if !ok {
			break
		}
		checks = append(checks, c)
		if o.Report != nil {
			o.Report(c)
		}
	}
	for _, info := range devices {
		if usable(info) {
			return checks, nil
		}
	}
	return checks, fmt.Errorf("%w of compute capability 8.0 or later (Ampere)", ErrNoDevice)
}

func usable(i driver.DeviceInfo) bool { return i.Major >= 8 }

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

func (e *examination) run(drv *driver.Driver, devices []driver.DeviceInfo) {
	text := fmt.Sprintf("CUDA %s, %s", drv.Version(), drv.Library())
	if release := driverRelease(); release != "" {
		text += ", release " + release
	}
	e.fact("driver", text)
	for _, info := range devices {
		name := fmt.Sprintf("device %d", info.Ordinal)
		text := fmt.Sprintf("%s, compute capability %d.%d, %d SMs, %.1f GiB", info.Name, info.Major, info.Minor, info.SMs, float64(info.Memory)/(1<<30))
		if !usable(info) {
			e.fact(name, text+": too old, 8.0 is needed")
			continue
		}
		e.fact(name, text)
		x := &patient{drv: drv, ordinal: info.Ordinal}
		e.device(x, info)
		x.close()
	}
}

func (e *examination) fact(name, detail string) {
	e.events <- event{check: Check{Name: name, Status: StatusFact, Detail: detail}}
}

// test runs one check, which may add a detail or a rate, and tells whether it
// passed.
func (e *examination) test(name string, run func(c *Check) error) bool {
	e.events <- event{begins: name}
	c := Check{Name: name, Status: StatusOK}
	start := time.Now()
	err := guarded(func() error { return run(&c) })
	c.Millis = float64(time.Since(start).Microseconds()) / 1000
	if err != nil {
		c.Status, c.Detail = StatusFailed, err.Error()
	}
	e.events <- event{check: c}
	return err == nil
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

// device examines one GPU.
func (e *examination) device(x *patient, info driver.DeviceInfo) {
	opened := e.test("context", func(c *Check) error {
		d, err := x.open()
		if err != nil {
			return err
		}
		free, total, err := d.ctx.MemInfo()
		c.Detail = fmt.Sprintf("%.1f GiB free of %.1f GiB", float64(free)/(1<<30), float64(total)/(1<<30))
		return err
	})
	if !opened {
		return
	}
	e.fact("cuBLASLt", x.blasText())
	var files []string
	for _, file := range kernels.Files(info.Major, info.Minor) {
		if e.wanted("load " + file) {
			files = append(files, file)
		}
	}
	for _, t := range x.dev.translateFiles(files) {
		e.test("load "+t.file, func(c *Check) (err error) {
			c.Detail, err = x.dev.adopt(t)
			return err
		})
	}
	for _, t := range selfTests {
		e.on(x, t.name, func(d *device, _ *Check) error { return t.run(d) })
	}
	e.on(x, "device copy", (*device).measureCopy)
	e.on(x, "upload, registered", func(d *device, c *Check) error { return d.measureUpload(c, false) })
	e.on(x, "upload, staged", func(d *device, c *Check) error { return d.measureUpload(c, true) })
	e.on(x, "download", (*device).measureDownload)
}

func (e *examination) wanted(name string) bool { return e.only == nil || e.only.MatchString(name) }

// on runs one check of a device.
func (e *examination) on(x *patient, name string, run func(*device, *Check) error) {
	if !e.wanted(name) {
		return
	}
	ok := e.test(name, func(c *Check) error {
		d, err := x.open()
		if err != nil {
			return err
		}
		return errors.Join(run(d, c), d.take())
	})
	if !ok {
		x.close()
	}
}

// patient is a device that is opened anew after a failed test: a kernel that
// went astray leaves its context unusable.
type patient struct {
	drv     *driver.Driver
	ordinal int
	dev     *device
	blasErr error // why there is no cuBLASLt
}

func (x *patient) open() (*device, error) {
	if x.dev == nil {
		d, err := newDevice(x.drv, x.ordinal)
		if err != nil {
			return nil, err
		}
		d.ctx.Enter()
		d.blas, x.blasErr = newBLAS(d.ctx)
		x.dev = d
	}
	return x.dev, nil
}

func (x *patient) close() {
	if d := x.dev; d != nil {
		x.dev = nil
		_ = d.close() // after a failed test nothing better is to be expected
		d.ctx.Leave()
	}
}

// blasText says what cuBLASLt there is. Its absence is no failure.
func (x *patient) blasText() string {
	switch b := x.dev.blas; {
	case b != nil:
		return b.versionText() + ", " + b.library.Path
	case errors.Is(x.blasErr, errNoBLAS):
		return "none: prefill uses the built-in kernels"
	}
	return fmt.Sprintf("unusable: %v", x.blasErr)
}

var releasePattern = regexp.MustCompile(`Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s`)

// driverRelease is the number by which a driver is installed, such as
// 550.54.15, where Linux tells it.
func driverRelease() string {
	text, err := os.ReadFile("/proc/driver/nvidia/version")
	if err != nil {
		return ""
	}
	return releaseOf(string(text))
}

func releaseOf(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	if m := releasePattern.FindStringSubmatch(line + " "); m != nil {
		return m[1]
	}
	return ""
}
