// Package driver binds NVIDIA's driver library at run time, without cgo:
// devices, contexts, memory, modules of PTX, streams, graphs and uploads of
// large files. It knows nothing of models.
//
// A context is current on a thread: every method of a [Context], and of what a
// context made, needs the caller to be between [Context.Enter] and
// [Context.Leave]. Contexts may be entered by many goroutines; a [Stream], a
// [Graph] and an [Event] belong to one goroutine at a time.
package driver

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"
)

// Ptr is an address in a device's memory.
type Ptr uint64

// Options choose the driver's library.
type Options struct {
	// Library is the path of the library; empty searches libcuda.so.1 where the
	// loader looks and in the folders of containers and WSL, or nvcuda.dll.
	Library string
	// Code is a folder where the driver is to keep what it has translated, if nobody has
	// told it one (CUDA_CACHE_PATH) and it has not begun; "": where it does by itself.
	Code string
}

// cachePath is the driver's own variable.
const cachePath = "CUDA_CACHE_PATH"

// ErrNoDriver says that the machine has no NVIDIA driver.
var ErrNoDriver = errors.New("cuda: no NVIDIA driver on this machine")

// errNotBuilt says that this build knows no GPUs. It is an ErrNoDriver.
var errNotBuilt error = notBuiltError{}

type notBuiltError struct{}

func (notBuiltError) Error() string {
	return "cuda: this build of windrow is without GPU backends (windrow_nogpu): want the one that is not static"
}

func (notBuiltError) Unwrap() error { return ErrNoDriver }

// ErrOldDriver says that the driver is older than CUDA 12.0.
var ErrOldDriver = errors.New("cuda: driver too old")

// minVersion is the oldest driver taken, as cuDriverGetVersion counts. Every
// function that this package needs is in it.
const minVersion = 12000

// overlapVersion is the first driver that captures overlapping launches into
// graphs.
const overlapVersion = 12030

// Driver is an opened and initialised driver library.
type Driver struct {
	api     *api
	library *Library
	version int
	empty   bool // cuInit found no device, and later calls only say that it failed
}

// Open loads the driver's library and initialises it. Errors: [ErrNoDriver],
// [ErrOldDriver], or what the driver says.
func Open(o Options) (*Driver, error) {
	if !built {
		return nil, errNotBuilt
	}
	keepCode(o.Code)
	paths := driverPaths
	if o.Library != "" {
		paths = []string{o.Library}
	}
	library, err := OpenLibrary(paths...)
	if err != nil {
		return nil, fmt.Errorf("%w (%s does not open): %s", ErrNoDriver, paths[0], firstLine(err))
	}
	d := &Driver{api: &api{}, library: library}
	if err := d.api.bind(library); err != nil {
		return nil, err
	}
	// The version is asked before cuInit, which an old kernel module may refuse.
	var version int32
	if err := d.api.call(&d.api.version, uintptr(unsafe.Pointer(&version))); err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	d.version = int(version)
	if d.version < minVersion {
		return nil, fmt.Errorf("%w: it knows CUDA %s; need CUDA 12.0 (driver 525) or later", ErrOldDriver, d.Version())
	}
	if err := d.api.call(&d.api.initialise, 0); err != nil {
		if d.empty = hasCode(err, codeNoDevice); !d.empty {
			return nil, fmt.Errorf("cuda: %w", err)
		}
	}
	return d, nil
}

// keepCode tells the driver of a folder. The C library's environment follows Go's; on Windows
// it may not, and where that or the folder cannot be the driver keeps to its own.
func keepCode(folder string) {
	if folder != "" && os.Getenv(cachePath) == "" && os.MkdirAll(folder, 0o700) == nil {
		os.Setenv(cachePath, folder)
	}
}

// missingError is the error of a library without functions that are needed.
func missingError(names []string) error {
	slices.Sort(names)
	text := strings.Join(names[:min(3, len(names))], ", ")
	if len(names) > 3 {
		text += fmt.Sprintf(" and %d more", len(names)-3)
	}
	return fmt.Errorf("%w: it lacks %s; need CUDA 12.0 (driver 525) or later", ErrOldDriver, text)
}

// Version is the newest CUDA that the driver knows, such as "12.4".
func (d *Driver) Version() string { return fmt.Sprintf("%d.%d", d.version/1000, d.version%1000/10) }

// Library is the path of the library that was opened.
func (d *Driver) Library() string { return d.library.Path }

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
