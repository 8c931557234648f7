// Package cuda runs forwards on NVIDIA GPUs through the driver API: no
// toolkit, no cgo. docs/cuda.md says how a forward becomes launches.
//
// For passes whose spans have 32 rows or fewer each, a row's result is
// bit-identical whatever other rows ride along, unless Options say otherwise.
package cuda

import (
	"errors"
	"fmt"

	"windrow/backend"
	"windrow/backend/paging"
	"windrow/cuda/driver"
	"windrow/cuda/launch"
)

// Options say which device to use, and how.
type Options struct {
	// Device is the ordinal of the GPU.
	Device int
	// Exact keeps activations in f32 in every operation.
	Exact bool
	// BatchVariant gives passes of more than 32 rows in all the fastest
	// kernels: a row's bits may then depend on what rides along. Passes of up to
	// 32 rows, and with them one sequence's, are as without it.
	BatchVariant bool
	// Marks is how many marks of states are kept (backend.Storage's Mark); 0:
	// paging.DefaultMarks, negative: none.
	Marks int
	// Preload loads kernels in the background while weights arrive (Preview).
	Preload bool
	// Code is a folder where the driver is to keep what it has translated; see
	// [driver.Options].
	Code string
	// Timeline has kernels tell when they run, for [Backend.Timeline].
	Timeline bool
	// Library is the driver's library; "" searches for it.
	Library string
	// Experts, where set, run the experts of the first ExpertLayers layers in the host's
	// memory. They are the backend's then, which closes them.
	Experts      backend.HostExperts
	ExpertLayers int
	// Progress is told of the bytes of each weight that has been taken.
	Progress func(bytes int64)
}

// Backend is one GPU as a backend.Backend.
type Backend struct {
	device   *launch.Device
	uploader *driver.Uploader
	exact    bool
	variant  bool                   // Options.BatchVariant
	preload  bool                   // Options.Preload
	packs    map[backend.DType]bool // whose kernel has been asked for (previewPack)
	// promptRows is Features.PromptRows.
	promptRows int
	notify     func(int64)

	owned []driver.Ptr // weights, angles and slabs of KV pages
	// In a group: room for parts of rows that are to be uploaded, and how much of it is
	// in use.
	gathered   []byte
	inGathered int
	weights    weightRoom
	freePages  map[int][]driver.Ptr
	// Of states by size, under the lock of the marks.
	freeStates map[int][]driver.Ptr
	marks      *paging.Marks[driver.Ptr]
	stacked    map[[2]*matrix]*matrix // of above
	unfilled   []unfilled
	budget     backend.Budget
	arena      launch.Arena
	graphs     graphs
	step       launch.Exchange     // the step block
	results    launch.Outbox       // row results
	states     launch.Outbox       // hidden states [rows, width] of a forward whose results bring some
	host       launch.Outbox       // rows for the host's experts, and what they made
	left       *driver.Event       // recorded when rows have left for them
	experts    backend.HostExperts // nil: there are none
	layers     int                 // whose experts they run
	running    *forward
	logits     []float32 // room for a row that nobody keeps
}

// New opens a GPU. Its error is one line that says what is missing: a driver,
// a device, its compute capability, memory.
func New(o Options) (*Backend, error) {
	drv, err := driver.Open(driver.Options{Library: o.Library, Code: o.Code})
	if err != nil {
		return nil, err
	}
	var begun *launch.Begun
	if o.Preload && !o.Timeline { // which needs kernels that tell when they run
		begun = launch.Begin(drv, o.Device)
	}
	dev, err := launch.NewDevice(drv, o.Device)
	if err != nil {
		begun.Drop()
		return nil, err
	}
	dev.Receive(begun)
	b := &Backend{device: dev, exact: o.Exact, variant: o.BatchVariant && !o.Exact, preload: o.Preload, notify: o.Progress, freePages: map[int][]driver.Ptr{}, freeStates: map[int][]driver.Ptr{}, stacked: map[[2]*matrix]*matrix{}, marks: paging.NewMarks[driver.Ptr](paging.DefaultMarks)}
	if o.Experts != nil {
		b.experts, b.layers = o.Experts, o.ExpertLayers
	}
	if o.Marks != 0 {
		b.marks.Limit(o.Marks)
	}
	dev.Context.Enter()
	defer dev.Context.Leave()
	if o.Timeline {
		if err := dev.WatchKernels(); err != nil {
			return nil, errors.Join(err, dev.Close())
		}
	}
	b.setPromptRows()
	if b.uploader, err = dev.Context.NewUploader(); err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return b, nil
}

// ErrNoDriver is what New's error wraps where the machine has no NVIDIA driver.
var ErrNoDriver = driver.ErrNoDriver

// DeviceName is the GPU's name.
func (b *Backend) DeviceName() string { return b.device.Info.Name }

// Launches is how many nodes the last replayed graph has: kernels and copies
// of one step.
func (b *Backend) Launches() int {
	if b.graphs.last == nil {
		return 0
	}
	if b.graphs.parts == nil {
		return b.graphs.last.Nodes()
	}
	n := 0
	for _, g := range b.graphs.parts {
		n += g.Nodes()
	}
	return n
}

// Timeline says when the kernels of what it runs ran, where Options.Timeline was set.
func (b *Backend) Timeline(run func() error) ([]backend.Launched, error) {
	return b.device.Timeline(run)
}

// HostExperts are those of Options.
func (b *Backend) HostExperts() (backend.HostExperts, int) {
	if b.layers == 0 {
		return nil, 0
	}
	return b.experts, b.layers
}

// Name is "cuda".
func (b *Backend) Name() string { return "cuda" }

// invariantRows is how many rows of a sequence a decode pass may have.
const invariantRows = 32

// prefillRows is how many rows of a prompt one pass should carry: large
// products are the faster the larger they are, but activations take about
// 200 KB a row of an 8B model.
func (b *Backend) prefillRows() int {
	if b.device.Info.Memory >= 40<<30 {
		return 8192
	}
	return 2048
}

// hostedPrefillRows is how many where the host has experts: a pass is waited for, the rows
// lie in page-locked memory, and experts read their weights hardly less often for more.
const hostedPrefillRows = 2048

// setPromptRows says how many rows a pass of prompts may have whose bits do not depend
// on their number: none where the device's kernels for many rows do not keep them. The
// exact arithmetic keeps them in all passes.
func (b *Backend) setPromptRows() {
	b.promptRows = 0
	if !b.exact && b.device.PromptsAlike() {
		b.promptRows = launch.PromptRows
	}
}

// Features describes the device.
func (b *Backend) Features() backend.Features {
	i := b.device.Info
	f := backend.Features{
		Description:        fmt.Sprintf("%s, compute capability %d.%d, driver %s", i.Name, i.Major, i.Minor, i.DriverVersion),
		Kernels:            "cuda-bf16",
		PrefillRows:        b.prefillRows(),
		BatchInvariantRows: invariantRows,
		PromptRows:         b.promptRows,
		HiddenRows:         true,
	}
	if b.variant {
		f.Kernels += "-variant"
		f.Description += fmt.Sprintf("; passes of more than %d rows are not batch invariant", invariantRows)
	}
	if b.layers > 0 {
		h := b.experts.Features()
		f.PrefillRows = min(f.PrefillRows, hostedPrefillRows)
		f.Description += fmt.Sprintf("; experts of %d layers in host memory: %s", b.layers, h.Description)
	}
	if b.exact {
		f.Kernels, f.Exact, f.BatchInvariantRows = "cuda-f32", true, 1<<20
	}
	if b.layers > 0 { // the bits of a row depend on who runs its experts
		h := b.experts.Features()
		f.Kernels += fmt.Sprintf(", %d layers' experts %s", b.layers, h.Kernels)
		if h.Quantized != "" {
			f.Kernels += " " + h.Quantized
		}
		f.Exact = f.Exact && h.Exact
		f.BatchInvariantRows = min(f.BatchInvariantRows, h.BatchInvariantRows)
	}
	return f
}

// FreeMemory is how many bytes the device has free, and has in all.
func (b *Backend) FreeMemory() (free, total uint64, err error) {
	b.device.Context.Enter()
	defer b.device.Context.Leave()
	return b.device.Context.MemInfo()
}

func (b *Backend) progress(bytes int64) {
	if b.notify != nil {
		b.notify(bytes)
	}
}

// Close frees everything on the device.
func (b *Backend) Close() error {
	if b.device == nil {
		return nil
	}
	d := b.device
	b.device = nil
	d.Context.Enter()
	defer d.Context.Leave()
	err := errors.Join(b.uploader.Close(), d.Stream.Synchronize())
	b.graphs.drop(nil)
	for _, p := range b.owned {
		d.Context.Free(p)
	}
	b.owned, b.freePages = nil, nil
	b.arena.Free(d.Context)
	b.step.Free(d.Context)
	b.results.Free()
	b.states.Free()
	b.host.Free()
	if b.left != nil {
		err = errors.Join(err, b.left.Close())
	}
	if b.experts != nil {
		err = errors.Join(err, b.experts.Close())
	}
	return errors.Join(err, d.Close())
}

var _ backend.Backend = (*Backend)(nil)
