package cuda

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"windrow/backend/doctor"
	"windrow/cuda/driver"
	"windrow/cuda/kernels"
	"windrow/cuda/launch"
)

// ErrNoDevice is what Doctor's and New's errors wrap where the driver shows no
// GPU.
var ErrNoDevice = driver.ErrNoDevice

// Doctor examines the driver and every GPU: it loads all kernels, runs their
// self-tests, and measures copies. library is the driver's; "" searches for it; code is
// where it is to keep what it translates, as in [Options]. An error says that there was
// nothing to examine; failed checks are in the list.
func Doctor(library, code string, o doctor.Options) ([]doctor.Check, error) {
	drv, err := driver.Open(driver.Options{Library: library, Code: code})
	if err != nil {
		return nil, err
	}
	devices, err := drv.Devices()
	if err != nil {
		return nil, err
	}
	checks := doctor.Examine(o, func(e *doctor.Examination) { (&examination{e}).run(drv, devices) })
	for _, info := range devices {
		if usable(info) {
			return checks, nil
		}
	}
	return checks, fmt.Errorf("%w of compute capability 8.0 or later (Ampere)", ErrNoDevice)
}

func usable(i driver.DeviceInfo) bool { return i.Major >= 8 }

// selfTests are those of the kernels.
var selfTests = launch.SelfTests

// examination is that of this machine's GPUs.
type examination struct{ *doctor.Examination }

func (e *examination) run(drv *driver.Driver, devices []driver.DeviceInfo) {
	text := fmt.Sprintf("CUDA %s, %s", drv.Version(), drv.Library())
	if release := driverRelease(); release != "" {
		text += ", release " + release
	}
	e.Fact("driver", text)
	for _, info := range devices {
		name := fmt.Sprintf("device %d", info.Ordinal)
		text := fmt.Sprintf("%s, compute capability %d.%d, %d SMs, %.1f GiB", info.Name, info.Major, info.Minor, info.SMs, float64(info.Memory)/(1<<30))
		if !usable(info) {
			e.Fact(name, text+": too old, 8.0 is needed")
			continue
		}
		e.Fact(name, text)
		x := &patient{drv: drv, ordinal: info.Ordinal}
		e.device(x, info)
		x.close()
	}
	e.group(drv, devices)
}

// group examines what several GPUs need to share a model.
func (e *examination) group(drv *driver.Driver, devices []driver.DeviceInfo) {
	lib, err := launch.FindNCCL()
	if err != nil {
		e.Fact("NCCL", fmt.Sprintf("none: %v", err))
		return
	}
	e.Fact("NCCL", lib.Text())
	n := 0 // of GPUs that a group would take: the first ones
	for n < len(devices) && usable(devices[n]) {
		n++
	}
	if n < 2 {
		return
	}
	e.Test("exchange", func(c *doctor.Check) error {
		g, err := NewGroup(Options{Library: drv.Library()}, n)
		if err != nil {
			return err
		}
		took, err := g.tryExchange()
		by := "through NCCL"
		if g.peers != nil {
			by = "by kernels that reach each other's memory"
		}
		c.Detail = fmt.Sprintf("%d GPUs, 16 KiB of each in %.1f µs %s", n, 1e6*took.Seconds(), by)
		return errors.Join(err, g.Close())
	})
}

// device examines one GPU.
func (e *examination) device(x *patient, info driver.DeviceInfo) {
	opened := e.Test("context", func(c *doctor.Check) error {
		d, err := x.open()
		if err != nil {
			return err
		}
		free, total, err := d.Context.MemInfo()
		c.Detail = fmt.Sprintf("%.1f GiB free of %.1f GiB", float64(free)/(1<<30), float64(total)/(1<<30))
		return err
	})
	if !opened {
		return
	}
	e.Fact("cuBLASLt", x.blasText())
	e.load(x.dev, info)
	for _, t := range selfTests {
		e.on(x, t.Name, func(d *launch.Device, _ *doctor.Check) error { return t.Run(d) })
	}
	e.on(x, "device copy", measureCopy)
	e.on(x, "upload, registered", func(d *launch.Device, c *doctor.Check) error { return measureUpload(d, c, false) })
	e.on(x, "upload, staged", func(d *launch.Device, c *doctor.Check) error { return measureUpload(d, c, true) })
	e.on(x, "download", measureDownload)
}

// load loads all kernels, several files at a time: the driver takes up to seconds for one.
func (e *examination) load(d *launch.Device, info driver.DeviceInfo) {
	type all struct {
		file    string
		kernels launch.Wanted
		err     error
	}
	var list []all
	for _, file := range kernels.Files(info.Major, info.Minor) {
		if e.Wanted("load " + file) {
			w, err := d.KernelsOf(file)
			d.Preload(w, 0)
			list = append(list, all{file, w, err})
		}
	}
	for _, f := range list {
		e.Test("load "+f.file, func(c *doctor.Check) (err error) {
			if err = f.err; err == nil {
				c.Detail, err = d.Await(f.kernels)
			}
			return err
		})
	}
}

// on runs one check of a device.
func (e *examination) on(x *patient, name string, run func(*launch.Device, *doctor.Check) error) {
	if !e.Wanted(name) {
		return
	}
	ok := e.Test(name, func(c *doctor.Check) error {
		d, err := x.open()
		if err != nil {
			return err
		}
		return errors.Join(run(d, c), d.Take())
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
	dev     *launch.Device
	blasErr error // why there is no cuBLASLt
}

func (x *patient) open() (*launch.Device, error) {
	if x.dev == nil {
		d, err := launch.NewDevice(x.drv, x.ordinal)
		if err != nil {
			return nil, err
		}
		d.Context.Enter()
		x.blasErr = d.OpenBLAS()
		x.dev = d
	}
	return x.dev, nil
}

func (x *patient) close() {
	if d := x.dev; d != nil {
		x.dev = nil
		_ = d.Close() // after a failed test nothing better is to be expected
		d.Context.Leave()
	}
}

// BLASText says what cuBLASLt there is. Its absence is no failure.
func (x *patient) blasText() string {
	switch text := x.dev.BLASText(); {
	case text != "":
		return text
	case errors.Is(x.blasErr, launch.ErrNoBLAS):
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
