package metal

import (
	"fmt"
	"os"

	"windrow/backend"
	"windrow/backend/paging"
	"windrow/metal/driver"
)

// matvecVariable set to 1 gives batch invariance up for the speed of single
// rows.
const matvecVariable = "WINDROW_METAL_MATVEC"

// Options say how to use the GPU.
type Options struct {
	// Exact keeps activations in f32 in every operation.
	Exact bool
	// Mapped are the memory regions in which weights may lie, mapped files say:
	// these weights are used in place, others are copied. They must stay mapped
	// until Close.
	Mapped [][]byte
	// Largest is the size of the largest weight in bytes.
	Largest int
	// Marks is how many marks of states are kept (backend.Storage's Mark); 0:
	// paging.DefaultMarks, negative: none.
	Marks int
}

// Backend is the GPU as a backend.Backend.
type Backend struct {
	memory  memory
	close   func() error // of the gpu
	info    driver.Info
	exact   bool
	weights *weights
	stored  map[*storage]bool // that are open
	pools   map[int]*pool     // by the bytes of a page
	budget  backend.Budget
	marks   *paging.Marks[*states]
	arena   arena
	tables  []*rotationTable
	step    view     // tokens, positions, wanted rows and tables of pages of a forward
	room    int      // bytes of step
	staged  []byte   // what the host puts there
	running *forward // from its Start to the end of its Wait
}

// New opens the GPU. Its error is one line that says what is missing: macOS, an
// Apple GPU.
func New(o Options) (*Backend, error) {
	g, err := openGPU()
	if err != nil {
		return nil, err
	}
	if os.Getenv(matvecVariable) == "1" {
		useMatvec.Store(true)
	}
	return newBackend(g, o), nil
}

// newBackend makes a backend of an opened gpu, which it closes.
func newBackend(g *gpu, o Options) *Backend {
	b := overMemory(gpuMemory{g}, o)
	b.info, b.close = g.device.info, g.close
	return b
}

func overMemory(m memory, o Options) *Backend {
	marks := o.Marks
	if marks == 0 {
		marks = paging.DefaultMarks
	}
	return &Backend{
		marks: paging.NewMarks[*states](marks), memory: m, close: func() error { return nil }, exact: o.Exact,
		weights: newWeights(m, o.Mapped, o.Largest), stored: map[*storage]bool{}, pools: map[int]*pool{}, arena: arena{least: arenaChunkBytes},
	}
}

// ErrNoDevice is what New's error wraps where there is no GPU to use: the
// system is not macOS, or too old, or the GPU is not Apple's.
var ErrNoDevice = driver.ErrNoDevice

// Name is "metal".
func (b *Backend) Name() string { return "metal" }

const (
	// invariantRows is how many rows of a sequence a decode forward may have.
	invariantRows = 32
	// promptRows is how many rows of a prompt one forward should carry: enough that
	// matrices are multiplied in large tiles, few enough that the forward of an 8B model
	// (1.8 · 10¹² operations) is one command buffer (submitFLOPs). In forwards of prompts
	// alone a row's bits do not depend on their number, up to this.
	promptRows = 128
)

// Features describes the device.
func (b *Backend) Features() backend.Features {
	f := backend.Features{
		Description: fmt.Sprintf("%s, family Apple%d, macOS %s; not yet run on hardware", b.info.Name, b.info.Family, b.info.System),
		Kernels:     "metal-bf16", PrefillRows: promptRows, PromptRows: promptRows, BatchInvariantRows: invariantRows, KVF16: true, HiddenRows: true,
	}
	if b.exact {
		f.Kernels, f.Exact = "metal-f32", true
	}
	if useMatvec.Load() {
		f.Kernels += ", matvec"
	}
	return f
}

// DeviceName is the GPU's name.
func (b *Backend) DeviceName() string { return b.info.Name }

// WorkingSet is how many bytes the GPU can use without slowing down.
func (b *Backend) WorkingSet() int64 { return int64(b.info.WorkingSet) }

// Close frees everything on the device.
func (b *Backend) Close() error {
	if b.memory == nil {
		return nil
	}
	b.settle()
	for c := range b.stored {
		c.Close()
	}
	for _, p := range b.pools {
		p.close()
	}
	for _, t := range b.tables {
		t.free()
	}
	b.weights.close()
	b.arena.free(b.memory)
	if b.room > 0 {
		b.memory.free(b.step)
	}
	b.memory, b.room = nil, 0
	return b.close()
}
