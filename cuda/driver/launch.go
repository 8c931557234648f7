package driver

import (
	"fmt"
	"unsafe"
)

// LaunchConfig is the shape of a launch.
type LaunchConfig struct {
	Grid   [3]uint32 // blocks in x, y and z
	Block  uint32    // threads of a block
	Shared uint32    // bytes of dynamic shared memory
	// Overlap lets the launch begin before the one before it has ended, up to
	// where its kernel waits for that. It has no effect on kernels that never
	// wait, and on devices before compute capability 9.0.
	Overlap bool
}

// maxParameters bounds the parameters of a kernel.
const maxParameters = 40

// launchBlock holds the arguments of cuLaunchKernel and cuLaunchKernelEx. It
// lies in a heap object that never moves, and points into itself.
type launchBlock struct {
	values    [maxParameters]uint64
	pointers  [maxParameters]unsafe.Pointer // to values
	plain     [11]uintptr
	extended  [4]uintptr
	config    extendedConfig
	attribute launchAttribute
}

// extendedConfig is CUlaunchConfig.
type extendedConfig struct {
	grid, block [3]uint32
	shared      uint32
	stream      uintptr
	attributes  unsafe.Pointer
	count       uint32
}

// launchAttribute is CUlaunchAttribute: an id, and a union of 64 bytes.
type launchAttribute struct {
	id    uint32
	_     uint32
	value [16]uint32
}

// attributeProgrammaticSerialization is the id whose value 1 lets a launch
// overlap the one before.
const attributeProgrammaticSerialization = 6

func (b *launchBlock) init(stream uintptr) {
	for i := range b.values {
		b.pointers[i] = unsafe.Pointer(&b.values[i])
	}
	parameters := uintptr(unsafe.Pointer(&b.pointers[0]))
	b.plain = [11]uintptr{8: stream, 9: parameters}
	b.attribute.id = attributeProgrammaticSerialization
	b.attribute.value[0] = 1
	b.config.stream = stream
	b.config.attributes = unsafe.Pointer(&b.attribute)
	b.config.count = 1
	b.extended = [4]uintptr{uintptr(unsafe.Pointer(&b.config)), 0, parameters, 0}
}

// Launch queues a kernel. Each argument is one parameter's value in the low
// bits: an address, a whole number, or a float's bits.
func (s *Stream) Launch(f *Function, c LaunchConfig, args []uint64) error {
	if s.handle == 0 {
		return errClosed
	}
	if len(args) != f.parameters || len(args) > maxParameters {
		return fmt.Errorf("cuda: kernel %s takes %d parameters, got %d (at most %d)", f.name, f.parameters, len(args), maxParameters)
	}
	if c.Shared > f.shared {
		return fmt.Errorf("cuda: kernel %s: %d bytes of shared memory; %d are allowed", f.name, c.Shared, f.shared)
	}
	b := &s.launch
	copy(b.values[:], args)
	p := &s.ctx.api.launch
	block := b.plain[:]
	if c.Overlap && f.waits && s.ctx.overlap {
		p = &s.ctx.api.launchExtended
		block = b.extended[:]
		b.config.grid = c.Grid
		b.config.block = [3]uint32{c.Block, 1, 1}
		b.config.shared = c.Shared
		b.extended[1] = f.handle
	} else {
		b.plain[0] = f.handle
		b.plain[1], b.plain[2], b.plain[3] = uintptr(c.Grid[0]), uintptr(c.Grid[1]), uintptr(c.Grid[2])
		b.plain[4], b.plain[5], b.plain[6] = uintptr(c.Block), 1, 1
		b.plain[7] = uintptr(c.Shared)
	}
	if err := s.queued(p, block); err != nil {
		return fmt.Errorf("kernel %s, grid %v, %d threads: %w", f.name, c.Grid, c.Block, err)
	}
	return nil
}

// ActiveClusters is how many clusters of a launch of a kernel that runs in clusters are at work at
// once; ok is false where the driver does not say.
func (f *Function) ActiveClusters(c LaunchConfig) (n int, ok bool) {
	p := &f.ctx.api.activeClusters
	if p.address == 0 {
		return 0, false
	}
	config := &extendedConfig{grid: c.Grid, block: [3]uint32{c.Block, 1, 1}, shared: c.Shared}
	var clusters int32
	err := f.ctx.api.call(p, uintptr(unsafe.Pointer(&clusters)), f.handle, uintptr(unsafe.Pointer(config)))
	return int(clusters), err == nil
}
