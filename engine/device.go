package engine

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/cpu"
	"windrow/cuda"
	"windrow/internal/memory"
	"windrow/metal"
	"windrow/model"
	"windrow/quant"
)

// device is an open backend, with what only its kind can tell, and the turn to
// use it.
type device struct {
	turn
	backend  backend.Backend
	features backend.Features
	// bandwidth measures, for about that long, how fast the device reads or
	// copies its memory, in GB/s (10⁹ bytes read, or read and written).
	bandwidth func(time.Duration) float64
	// launches is how many nodes the last step's graph had; nil: no graphs.
	launches func() int
	// room is how many bytes keys and values may well take, once the weights are
	// there; 0: unknown.
	room func() int64
	// hosted is where weights lie when experts stay in the host's memory, and hostBandwidth
	// measures how fast that is read; nil: none do.
	hosted        *model.HostExperts
	hostBandwidth func(time.Duration) float64
}

func newDevice(b backend.Backend, bandwidth func(time.Duration) float64, launches func() int, room func() int64) *device {
	return &device{turn: newTurn(), backend: b, features: b.Features(), bandwidth: bandwidth, launches: launches, room: room}
}

// Of a GPU's free memory keys and values may take most: activations and graphs take
// little beside weights. Of the host's memory, where other programs live, a quarter.
const (
	roomOfGPU  = 0.8
	roomOfHost = 0.25
)

// roomOf is a share of what free says; 0 where it cannot.
func roomOf(share float64, free func() (int64, error)) func() int64 {
	return func() int64 {
		n, err := free()
		if err != nil {
			return 0
		}
		return int64(share * float64(max(n, 0)))
	}
}

// close waits for the turn and keeps it from others for good.
func (d *device) close() {
	<-d.token
	defer d.give()
	if !d.closed {
		d.closed = true
		d.backend.Close()
	}
}

// openDevice opens the device that the options ask for. Auto takes a GPU where one
// can hold the weights, and notes why it does not take one that is there.
func openDevice(o Options, src checkpoint.Source) (*device, error) {
	layers, err := o.hostLayers(src.Config())
	if err != nil {
		return nil, err
	}
	o.HostLayers = layers
	gpus := map[string]func(Options, checkpoint.Source) (*device, error){CUDA: openCUDA, Metal: openMetal}
	if err := model.CheckDevices(src, o.GPUs); err != nil { // before they are looked for
		return nil, err
	}
	for _, name := range o.gpuKinds() {
		d, err := gpus[name](o, src)
		switch {
		case err == nil:
			if layers > 0 && d.hosted == nil {
				o.Note(fmt.Sprintf("no experts stay apart: %s has its weights in the host's memory", name))
			}
			return d, nil
		case o.Backend == name, o.GPUs > 1:
			return nil, err
		case !errors.Is(err, cuda.ErrNoDriver) && !errors.Is(err, metal.ErrNoDevice):
			o.Note(fmt.Sprintf("%v; going on with the CPU", err))
		}
	}
	b, err := cpu.New(cpu.Options{Threads: o.Threads, Exact: o.Exact, Kernels: o.Kernels, Marks: o.StateCache, Verdicts: o.Measurements})
	if err != nil {
		return nil, err
	}
	if layers > 0 {
		o.Note("no experts stay apart: the CPU runs the whole model, whose weights are in the host's memory")
	}
	threads := b.Features().Threads
	return newDevice(b, func(d time.Duration) float64 { return cpu.MeasureBandwidth(threads, d) }, nil,
		roomOf(roomOfHost, func() (int64, error) { return memory.Total(), nil })), nil
}

// gpuKinds are the kinds of GPUs to try. Kernels that are asked for are the CPU's;
// several GPUs are NVIDIA's.
func (o Options) gpuKinds() []string {
	switch {
	case o.GPUs > 1:
		return []string{CUDA}
	case o.Backend == CUDA, o.Backend == Metal:
		return []string{o.Backend}
	case o.Backend == CPU, o.Kernels != "":
		return nil
	case runtime.GOOS == "darwin":
		return []string{Metal}
	}
	return []string{CUDA}
}

// openCUDA opens a GPU that can hold the weights, or several that can share them.
func openCUDA(o Options, src checkpoint.Source) (*device, error) {
	// Where there is no GPU, and none was asked for, it is no news what one would want.
	unfit := cuda.CheckKVType(o.KV)
	if unfit != nil && (o.Backend == CUDA || o.GPUs > 1) {
		return nil, unfit
	}
	weights := model.DeviceBytes(src, 1, o.Exact)
	var done int64
	options := cuda.Options{Preload: true, Code: o.Measurements.Kernels(), Exact: o.Exact, BatchVariant: o.BatchVariant, Marks: o.StateCache, Timeline: o.Timeline, Library: o.CUDALibrary, Progress: func(n int64) {
		done += n
		o.Progress(done, weights)
	}}
	if o.GPUs > 1 {
		return openGroup(options, o.GPUs, src)
	}
	var hosted *model.HostExperts
	if o.HostLayers > 0 {
		x := model.HostExpertsOf(src, o.HostLayers, o.Exact)
		hosted, weights = &x, x.DeviceBytes
		host, err := cpu.New(cpu.Options{Threads: o.Threads, Exact: o.Exact})
		if err != nil {
			return nil, err
		}
		options.Experts, options.ExpertLayers = host, o.HostLayers
	}
	b, err := cuda.New(options)
	if err != nil {
		if options.Experts != nil {
			options.Experts.Close()
		}
		return nil, err
	}
	free, total, err := b.FreeMemory()
	if err == nil {
		err = unfit
	}
	if err == nil && uint64(weights) > free {
		err = &MemoryError{Backend: CUDA, Device: b.DeviceName(), Need: weights, Free: int64(free), Total: int64(total), HostLayers: layersThatFit(src, o, weights, int64(free))}
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	d := newDevice(b, b.CopyBandwidth, b.Launches, roomOf(roomOfGPU, func() (int64, error) {
		free, _, err := b.FreeMemory()
		return int64(free), err
	}))
	if d.hosted = hosted; hosted != nil {
		threads := options.Experts.Features().Threads
		d.hostBandwidth = func(d time.Duration) float64 { return cpu.MeasureBandwidth(threads, d) }
	}
	return d, nil
}

// layersThatFit is of how many layers experts have to stay in the host's memory so that of
// a GPU with so many bytes free a tenth is left beside the rest of the weights, which take
// need with the layers of the options; 0: that does not suffice, or there are no experts.
func layersThatFit(src checkpoint.Source, o Options, need, free int64) int {
	for i, bytes := range model.ExpertBytes(src, o.Exact) {
		if i < o.HostLayers {
			continue
		}
		if need -= bytes; bytes > 0 && need <= free-free/10 {
			return i + 1
		}
	}
	return 0
}

// openGroup opens several GPUs that can hold their parts of the weights.
func openGroup(o cuda.Options, n int, src checkpoint.Source) (*device, error) {
	g, err := cuda.NewGroup(o, n)
	if err != nil {
		return nil, err
	}
	part := model.DeviceBytes(src, n, o.Exact)
	free, total, number, err := g.FreeMemory()
	if err == nil && uint64(part) > free {
		err = &MemoryError{Backend: CUDA, Device: fmt.Sprintf("GPU %d (%s)", number, g.DeviceName()), Part: true,
			Need: part, Free: int64(free), Total: int64(total)}
	}
	if err != nil {
		g.Close()
		return nil, err
	}
	return newDevice(g, g.CopyBandwidth, g.Launches, roomOf(roomOfGPU, func() (int64, error) {
		free, _, _, err := g.FreeMemory()
		return int64(free) * int64(n), err
	})), nil
}

// openMetal opens an Apple GPU that can hold the weights, in place where they
// are mapped.
func openMetal(o Options, src checkpoint.Source) (*device, error) {
	largest := 0
	var types []backend.DType // of matrices
	for _, name := range src.Names() {
		if t, ok := src.Tensor(name); ok {
			largest = max(largest, len(t.Data))
			dt := quant.ConvertedType(t.DType, o.Exact)
			if len(t.Shape) >= 2 && !slices.Contains(types, dt) {
				types = append(types, dt)
			}
		}
	}
	b, err := metal.New(metal.Options{Exact: o.Exact, Marks: o.StateCache, Mapped: checkpoint.Mappings(src), Largest: largest})
	if err != nil {
		return nil, err
	}
	if weights := model.DeviceBytes(src, 1, o.Exact); weights > b.WorkingSet() {
		b.Close()
		return nil, &MemoryError{Backend: Metal, Device: b.DeviceName(), Need: weights, Free: b.WorkingSet()}
	}
	// Until the kernels have met Apple's compiler, auto has the CPU to fall back on.
	if err := b.CompileSources(types, src.Config().Experts != nil, src.Config().Delta != nil); err != nil {
		b.Close()
		return nil, err
	}
	weights := model.DeviceBytes(src, 1, o.Exact)
	return newDevice(b, b.Bandwidth, nil, roomOf(roomOfGPU, func() (int64, error) { return b.WorkingSet() - weights, nil })), nil
}
