// Package cpu runs forwards on the processor: a reference in plain Go, and
// kernels for amd64 (AMX, AVX-512, AVX2) and arm64 (NEON) chosen at run time.
// Quantised weights meet activations rounded to int8, with the same bits from
// every instruction set, or, with Exact, are widened to f32.
//
// Whatever the kernels, a row's result is bit-identical whatever other rows
// ride along (batch invariance), and independent of the number of threads;
// Accelerate, where macOS has it and it is faster, gives that up in forwards of
// more than 128 rows.
package cpu

import (
	"fmt"
	"os"
	"runtime"
	"sync"

	"windrow/backend"
	"windrow/backend/paging"
	"windrow/cpu/kernels"
)

// Options say how the backend runs.
type Options struct {
	// Threads is the number of workers; 0 means one for each CPU.
	Threads int
	// Exact keeps activations in f32 in every operation.
	Exact bool
	// Kernels names a kernel table (see KernelTables); "" means the best.
	Kernels string
	// Marks is how many marks of states are kept (backend.Storage's Mark); 0:
	// paging.DefaultMarks, negative: none.
	Marks int
	// Verdicts keeps whether Accelerate is faster; nil measures at every start.
	Verdicts Verdicts
}

// KernelTables lists the kernel tables that this machine can run, by name.
func KernelTables() []string { return kernels.Names() }

// Backend is the CPU as a backend.Backend.
type Backend struct {
	k          *kernels.Table
	exact      bool
	pool       *pool
	scratch    []scratch // one a worker
	packed     kernels.Packed
	budget     backend.Budget
	marks      *paging.Marks[*states]
	slabsMutex sync.Mutex
	slabs      map[slabsKey]*slabs
	blas       blas
	hosted     *forward // what layers of experts share that run for a device; nil: there are none
	// partials of the row statistics, kept between forwards
	partials []partial
	tops     []topList
}

// maxThreads bounds --threads: more is surely a mistake.
const maxThreads = 1024

// New starts the workers.
func New(o Options) (*Backend, error) {
	k, err := kernels.ByName(o.Kernels)
	if err != nil {
		return nil, err
	}
	n := o.Threads
	if n == 0 {
		n = runtime.GOMAXPROCS(0)
	}
	if n < 0 || n > maxThreads {
		return nil, fmt.Errorf("threads: %d, want 1 to %d, or 0 for one a CPU", n, maxThreads)
	}
	b, err := newBackend(k, o.Exact, n, &accelerate, os.Getenv(accelerateVariable), o.Verdicts)
	if err == nil && o.Marks != 0 {
		b.marks.Limit(o.Marks)
	}
	return b, err
}

func newBackend(k *kernels.Table, exact bool, threads int, c *blasChooser, setting string, kept Verdicts) (*Backend, error) {
	b := &Backend{k: k, exact: exact, pool: newPool(threads), scratch: make([]scratch, threads), marks: paging.NewMarks[*states](paging.DefaultMarks), slabs: map[slabsKey]*slabs{}}
	var err error
	if b.blas, err = c.choose(b, setting, kept); err != nil {
		b.pool.close()
		return nil, err
	}
	return b, nil
}

// Name is "cpu".
func (b *Backend) Name() string { return "cpu" }

// Features describes the kernels in use.
func (b *Backend) Features() backend.Features {
	p := b.k.Exact
	if !b.exact && b.k.Fast != nil {
		p = b.k.Fast
	}
	quantized, also := "", ""
	if !b.exact && b.k.Quant != nil {
		quantized = b.k.QuantName
		also = ", " + quantized + " for quantised weights"
	}
	f := backend.Features{
		Description:        fmt.Sprintf("%s kernels%s, %d threads%s", p.Name(), also, b.pool.workers, b.blas.note),
		Kernels:            p.Name(),
		Quantized:          quantized,
		Exact:              b.exact || !b.k.Rounds(),
		KVF16:              true,
		HiddenRows:         true,
		Threads:            b.pool.workers,
		PrefillRows:        prefillRows,
		BatchInvariantRows: 1 << 20,
	}
	if b.blas.product != nil {
		f.Kernels += ", accelerate"
		f.BatchInvariantRows = b.blas.rows
	}
	return f
}

// Arithmetic names the kernels that would multiply a weight, or each matrix of a stack
// of them, and reports whether they round activations, to bf16 or to int8. Errors are
// those of Matrix, for a tensor that is made already.
func (b *Backend) Arithmetic(t backend.Tensor) (name string, rounds bool, err error) {
	if n := t.Elements(); len(t.Shape) > 2 && n > 0 { // what a row is decides
		in := t.Shape[len(t.Shape)-1]
		t.Shape = []int{n / in, in}
	}
	if t.Make == nil {
		if _, err := b.Matrix(t); err != nil {
			return "", false, err
		}
	}
	switch p := b.matrix(t).proj.(type) {
	case kernels.IntegerProjector:
		return p.Arithmetic(), true, nil
	default:
		return p.Name(), p == b.k.Fast, nil
	}
}

// prefillRows is how many rows a prefill forward should carry.
const prefillRows = 512

// Close stops the workers. Matrices keep no memory of their own.
func (b *Backend) Close() error {
	b.pool.close()
	b.slabsMutex.Lock()
	defer b.slabsMutex.Unlock()
	for _, p := range b.slabs {
		p.close()
	}
	b.packed, b.hosted = kernels.Packed{}, nil
	b.blas.wide, b.blas.out = [2][]float32{}, [2][]float32{}
	return nil
}
