package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/cpu"
	"windrow/cuda"
	"windrow/internal/units"
	"windrow/metal"
	"windrow/model"
	"windrow/quant"
)

// The names that --backend takes.
const (
	backendAuto  = "auto"
	backendCPU   = "cpu"
	backendCUDA  = "cuda"
	backendMetal = "metal"
)

// opened is a backend with what only its kind can tell.
type opened struct {
	backend.Backend
	// bandwidth measures, for about that long, how fast the device reads or
	// copies its memory, in GB/s (10⁹ bytes read, or read and written).
	bandwidth func(time.Duration) float64
	// launches is how many nodes the last step's graph had; nil: no graphs.
	launches func() int
}

// openBackend opens the device that the flags ask for. auto takes the GPU
// where one can hold the weights, and says on notes why it does not take one
// that is there.
func openBackend(m machineOptions, src checkpoint.Source, notes io.Writer) (*opened, error) {
	gpus := map[string]func(machineOptions, checkpoint.Source, io.Writer) (*opened, error){backendCUDA: openCUDA, backendMetal: openMetal}
	for _, name := range m.kinds() {
		b, err := gpus[name](m, src, notes)
		switch {
		case err == nil:
			return b, nil
		case m.backend == name, m.gpus > 1:
			return nil, err
		case !errors.Is(err, cuda.ErrNoDriver) && !errors.Is(err, metal.ErrNoDevice):
			fmt.Fprintf(notes, "%v; going on with the CPU\n", err)
		}
	}
	b, err := cpu.New(cpu.Options{Threads: m.threads, Exact: m.exact, Kernels: m.kernels, Verdicts: verdictCache{}})
	if err != nil {
		return nil, err
	}
	threads := b.Features().Threads
	return &opened{Backend: b, bandwidth: func(d time.Duration) float64 { return cpu.MeasureBandwidth(threads, d) }}, nil
}

// kinds are the kinds of GPUs to try. Kernels that are asked for are the CPU's;
// several GPUs are NVIDIA's.
func (m machineOptions) kinds() []string {
	switch {
	case m.gpus > 1:
		return []string{backendCUDA}
	case m.backend == backendCUDA, m.backend == backendMetal:
		return []string{m.backend}
	case m.backend == backendCPU, m.kernels != "":
		return nil
	case runtime.GOOS == "darwin":
		return []string{backendMetal}
	}
	return []string{backendCUDA}
}

// uploadBarBytes is how large a model has to be for its upload to show a bar.
const uploadBarBytes = 1 << 30

// openCUDA opens a GPU that can hold the weights, or several that can share them.
func openCUDA(m machineOptions, src checkpoint.Source, notes io.Writer) (*opened, error) {
	// Where there is no GPU, and none was asked for, it is no news what one would want.
	unfit := cuda.CheckKVType(m.kv)
	if unfit != nil && (m.backend == backendCUDA || m.gpus > 1) {
		return nil, unfit
	}
	weights := model.DeviceBytes(src, 1, m.exact)
	bar := newProgress(notes, "upload")
	var done int64
	o := cuda.Options{Exact: m.exact, BatchVariant: m.variant, Library: m.library, Progress: func(n int64) {
		if done += n; weights < uploadBarBytes {
			return
		}
		bar.update(int(done>>20), int(weights>>20), "MiB")
		if done >= weights {
			bar.finish()
		}
	}}
	if m.gpus > 1 {
		return openGroup(o, m.gpus, src)
	}
	b, err := cuda.New(o)
	if err != nil {
		return nil, err
	}
	free, total, err := b.FreeMemory()
	if err == nil {
		err = unfit
	}
	if err == nil && uint64(weights) > free {
		err = fmt.Errorf("cuda: the weights take %s, %s has %s free of %s", units.Bytes(weights), b.DeviceName(), units.Bytes(int64(free)), units.Bytes(int64(total)))
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	return &opened{Backend: b, bandwidth: b.CopyBandwidth, launches: b.Launches}, nil
}

// openGroup opens several GPUs that can hold their parts of the weights.
func openGroup(o cuda.Options, n int, src checkpoint.Source) (*opened, error) {
	g, err := cuda.NewGroup(o, n)
	if err != nil {
		return nil, err
	}
	part := model.DeviceBytes(src, n, o.Exact)
	free, total, device, err := g.FreeMemory()
	if err == nil && uint64(part) > free {
		err = fmt.Errorf("cuda: a part of the weights takes %s, GPU %d (%s) has %s free of %s", units.Bytes(part), device, g.DeviceName(), units.Bytes(int64(free)), units.Bytes(int64(total)))
	}
	if err != nil {
		g.Close()
		return nil, err
	}
	return &opened{Backend: g, bandwidth: g.CopyBandwidth, launches: g.Launches}, nil
}

// openMetal opens an Apple GPU that can hold the weights, in place where they
// are mapped.
func openMetal(m machineOptions, src checkpoint.Source, _ io.Writer) (*opened, error) {
	largest := 0
	var types []backend.DType // of matrices
	for _, name := range src.Names() {
		if t, ok := src.Tensor(name); ok {
			largest = max(largest, len(t.Data))
			dt := quant.ConvertedType(t.DType, m.exact)
			if len(t.Shape) == 2 && !slices.Contains(types, dt) {
				types = append(types, dt)
			}
		}
	}
	b, err := metal.New(metal.Options{Exact: m.exact, Mapped: checkpoint.Mappings(src), Largest: largest})
	if err != nil {
		return nil, err
	}
	if weights := model.DeviceBytes(src, 1, m.exact); weights > b.WorkingSet() {
		b.Close()
		return nil, fmt.Errorf("metal: the weights take %s, %s can use %s", units.Bytes(weights), b.DeviceName(), units.Bytes(b.WorkingSet()))
	}
	// Until the kernels have met Apple's compiler, auto has the CPU to fall back on.
	if err := b.Compile(types); err != nil {
		b.Close()
		return nil, err
	}
	return &opened{Backend: b, bandwidth: b.Bandwidth}, nil
}
