package launch

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"windrow/cuda/driver"
	"windrow/cuda/kernels"
)

// Device is one GPU with its stream and the kernels loaded so far. Launchers
// are its methods; the first error is kept, and later launches do nothing.
type Device struct {
	Context   *driver.Context
	Info      driver.DeviceInfo
	Stream    *driver.Stream
	blas      *cublas // nil where cuBLASLt is not found
	functions map[entry]*function
	loading   map[entry]*loading // in the background (Preload),
	loaders   *loaders           // who does that
	gathered  map[kernel]bool    // while launches are gathered, what they would have to load
	err       error
	Tuning    Tuning  // of decode projections
	common    bool    // for tests: kernels for compute capability 9.0 alone are left out
	brief     bool    // self-tests take few shapes: an emulated device is slow
	dry       bool    // load what launches need, and enqueue nothing
	overlap   bool    // the launch before was a kernel: this one may start its prologue
	prefill   prefill // what prefill projections keep

	rank     *Rank  // in a group of GPUs; nil: alone
	peers    *Peers // of a group whose GPUs reach each other's memory
	partials room   // sums of a part of the inputs (PreparePartials)

	attendWork  driver.Ptr // parts of decode attention (PrepareAttend)
	attendBytes int
	flash       flashState
	mixtures    mixtures
	clusters    map[kernel]int // that are at work at once, of a kernel with so much shared memory
	folding     room           // counts of the value heads that have folded in (PrepareDelta)

	timeline *timeline // what kernels tell of when they run (WatchKernels); nil: nothing
}

// kernel names an entry point: file is the name of a .cu file without its
// suffix. shared is the dynamic shared memory it may ask for, in bytes.
type kernel struct {
	file, name string
	shared     int
}

// roomy reports whether all of a multiprocessor's memory is to be shared memory while the kernel runs there: then blocks
// of the next launch begin beside this one's, and need not wait until that memory is split anew
// (docs/adr/0061-a-multiprocessor-is-not-split-anew.md). It is so for what steps of few rows are made of, between which a
// multiprocessor stays as it is, but for norms, and for projections of one row by Q4_0 and Q4_K: with them some steps are
// slower.
func (k kernel) roomy() bool {
	return slices.ContainsFunc(roomyKernels, func(prefix string) bool { return strings.HasPrefix(k.name, prefix) })
}

var roomyKernels = []string{
	"attend_fresh", "attend_merge", "attend_unit", "delta_few", "embed", "experts_few", "experts_one", "few_", "held_", "one_affine4",
	"route_bf16", "route_choose_few", "row_",
}

// NewDevice makes a context and a stream on a device. The caller holds the
// context (driver.Context.Enter) around every use.
func NewDevice(d *driver.Driver, ordinal int) (*Device, error) {
	ctx, err := d.NewContext(ordinal)
	if err != nil {
		return nil, err
	}
	ctx.Enter()
	defer ctx.Leave()
	stream, err := ctx.NewStream()
	if err != nil {
		return nil, errors.Join(err, ctx.Close())
	}
	return &Device{
		Context: ctx, Info: ctx.Info(), Stream: stream,
		functions: map[entry]*function{}, loading: map[entry]*loading{}, loaders: new(loaders),
	}, nil
}

// entry names a kernel's code, whatever shared memory a launch asks for.
type entry struct{ file, name string }

// function is a loaded kernel; shared is how much dynamic shared memory it has
// been allowed.
type function struct {
	*driver.Function
	shared int
}

// function finds a kernel, and loads it when it is first asked for.
func (d *Device) function(k kernel) (*driver.Function, error) {
	e := entry{k.file, k.name}
	f, ok := d.functions[e]
	if !ok {
		if d.gathered != nil {
			d.gathered[k] = true
			return nil, nil
		}
		if f = d.preloaded(e); f == nil {
			var err error
			if f, err = d.translate(k); err != nil {
				return nil, err
			}
		}
		d.functions[e] = f
	}
	if k.shared > max(f.shared, 48<<10) {
		if err := f.AllowShared(k.shared); err != nil {
			return nil, err
		}
		f.shared = k.shared
	}
	return f.Function, nil
}

// translate loads a kernel.
func (d *Device) translate(k kernel) (*function, error) {
	image, err := kernels.PTX(k.file, k.name, d.Info.Major, d.Info.Minor)
	if err != nil {
		return nil, err
	}
	if d.timeline != nil {
		if image, err = d.timeline.mark(k.name, image); err != nil {
			return nil, err
		}
	}
	m, err := d.Context.Load(image)
	if err != nil {
		return nil, fmt.Errorf("cuda: kernel %s of %s: %w", k.name, k.file, err)
	}
	return d.functionOf(m, k)
}

// functionOf finds the only kernel of a module, which is closed after an error.
func (d *Device) functionOf(m *driver.Module, k kernel) (*function, error) {
	f, err := m.Function(k.name)
	if err == nil && d.Info.Major == 9 && k.roomy() { // where it was measured; before, launches do not overlap
		err = f.PreferShared()
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return &function{Function: f}, nil
}

// dim is the shape of a grid.
type dim struct{ x, y, z int }

// launch enqueues a kernel of grid blocks of threads threads. Arguments are
// pointers, u32 and f32 values, each widened to 64 bits (see f32).
func (d *Device) launch(k kernel, grid dim, threads int, args ...uint64) {
	if d.err != nil {
		return
	}
	f, err := d.function(k)
	if err == nil && !d.dry {
		err = d.Stream.Launch(f, driver.LaunchConfig{
			Grid:    [3]uint32{uint32(grid.x), uint32(max(grid.y, 1)), uint32(max(grid.z, 1))},
			Block:   uint32(threads),
			Shared:  uint32(k.shared),
			Overlap: d.overlap,
		}, args)
		d.overlap = true
	}
	if err != nil {
		d.err = fmt.Errorf("%s: %w", k.name, err)
	}
}

// CopyIn and copy enqueue copies, from the host and on the device.
func (d *Device) CopyIn(dst driver.Ptr, src *driver.Pinned, n int) {
	d.enqueue(func() error { return d.Stream.CopyIn(dst, src, 0, n) })
}

func (d *Device) Copy(dst, src driver.Ptr, n int) {
	d.enqueue(func() error { return d.Stream.Copy(dst, src, n) })
}

// enqueue runs f unless an error is held or nothing is to be enqueued. A kernel
// after it waits for it: only kernels overlap.
func (d *Device) enqueue(f func() error) {
	if d.err == nil && !d.dry {
		d.err = f()
	}
	d.overlap = false
}

// f32 is a float as a kernel argument.
func f32(x float32) uint64 { return uint64(math.Float32bits(x)) }

// flag is a bool as a kernel argument.
func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// Take returns the first error of the launches and clears it.
func (d *Device) Take() error {
	err := d.err
	d.err = nil
	return err
}

// Close frees the stream and the context with all that was allocated in it.
func (d *Device) Close() error {
	d.awaitLoading()
	d.Context.Enter()
	defer d.Context.Leave()
	d.forgetKernels()
	return errors.Join(d.blas.close(), d.Stream.Close(), d.Context.Close())
}

// DownloadFloats copies floats from the device, once its work is done.
func (d *Device) DownloadFloats(out []float32, from driver.Ptr) error {
	return d.Context.DownloadFloats(out, from)
}

// Rehearse loads the kernels of launches, of which nothing is enqueued: nothing may
// be loaded while a capture is under way.
func (d *Device) Rehearse(launches func()) error {
	d.dry = true
	launches()
	d.dry = false
	return d.Take()
}

// Loaded reports whether a kernel of a file whose name ends so has been loaded.
func (d *Device) Loaded(suffix string) bool {
	for e := range d.functions {
		if strings.HasSuffix(e.file, suffix) {
			return true
		}
	}
	return false
}
