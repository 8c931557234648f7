// Package emulator runs Metal kernels on the CPU, for tests on machines without
// Metal: their source is compiled as C++ by clang on first use, kept in the
// user's cache folder, and run one thread at a time.
//
// Threadgroups run one after another; the seed of a launch permutes them, their
// simdgroups and threads. New threadgroup memory holds NaN. Any build finds
// divergence at barriers and operations of a simdgroup, different matrices in
// the threads of one simdgroup, bindings that are missing or too small, and too
// much threadgroup memory. The checked build also finds races between threads and
// between threadgroups, accesses out of bounds, misaligned ones, and threadgroup
// memory read before it is written.
//
// It says nothing of speed or registers, of what Apple's compiler takes (Lint
// helps there), of the rounding of Metal's own functions and of its matrix unit,
// or of threadgroups that wait for one another.
package emulator

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"windrow/emulation"
)

// Build is a way to compile kernels.
type Build int

const (
	Plain   Build = iota // IEEE arithmetic, no contraction
	Fast                 // as fast as Metal's fast math allows: no NaN, no infinity, any order of sums
	Checked              // Plain with the checker
	Quick                // Plain, compiled in less time and run in more
)

func (b Build) String() string { return [...]string{"plain", "fast", "checked", "quick"}[b] }

// Available skips a test where kernels cannot be emulated (they need clang-22
// on linux/amd64), or fails it where CI is set.
func Available(t testing.TB) {
	t.Helper()
	emulation.Available(t, "the Metal emulator")
}

// Library is a compiled source.
type Library struct {
	mu       sync.Mutex // the executor runs one launch at a time
	dispatch func(d unsafe.Pointer, message *byte, size uintptr) uintptr
	kernels  map[string]*Kernel
}

// Kernel is an entry point of a library.
type Kernel struct {
	library     *Library
	name        string
	mostThreads int // 0: 1024
	bindings    []Binding
}

// Kind is what a binding is.
type Kind int

const (
	Buffer            Kind = iota // a pointer
	ConstantReference             // a parameter struct
	Threadgroup                   // threadgroup memory whose size the dispatch sets
)

// Binding is a parameter of a kernel that a dispatch has to set.
type Binding struct {
	Index    int
	Kind     Kind
	Size     int // bytes of the struct, or of the element that is pointed to
	Writable bool
}

var (
	mu     sync.Mutex
	loaded = map[string]*Library{} // by path
)

// open loads a library that was built.
func open(path string) (*Library, error) {
	mu.Lock()
	defer mu.Unlock()
	if l := loaded[path]; l != nil {
		return l, nil
	}
	handle, err := dlopen(path)
	if err != nil {
		return nil, err
	}
	l := &Library{kernels: map[string]*Kernel{}}
	purego.RegisterLibFunc(&l.dispatch, handle, "metal_dispatch")
	var describe func(out *byte, size uintptr) uintptr
	purego.RegisterLibFunc(&describe, handle, "metal_describe")
	text := make([]byte, describe(nil, 0)+1)
	text = text[:describe(&text[0], uintptr(len(text)))]
	for line := range strings.Lines(string(text)) {
		k, err := parseKernel(strings.Fields(line))
		if err != nil {
			return nil, err
		}
		k.library = l
		l.kernels[k.name] = k
	}
	loaded[path] = l
	return l, nil
}

// parseKernel reads a line of metal_describe.
func parseKernel(fields []string) (*Kernel, error) {
	if len(fields) < 2 {
		return nil, errors.New("metal emulator: the library describes no kernel")
	}
	most, err := strconv.Atoi(fields[1])
	k := &Kernel{name: fields[0], mostThreads: most}
	for _, f := range fields[2:] {
		var attribute, index, size, writable, reference int
		if _, e := fmt.Sscanf(f, "%d:%d:%d:%d:%d", &attribute, &index, &size, &writable, &reference); e != nil {
			return nil, e
		}
		b := Binding{Index: index, Size: size, Writable: writable != 0}
		switch {
		case attribute == 1:
			b.Kind = Threadgroup
		case attribute != 0:
			continue
		case reference != 0:
			b.Kind = ConstantReference
		}
		k.bindings = append(k.bindings, b)
	}
	return k, err
}

// Kernels returns the host names, in order.
func (l *Library) Kernels() []string {
	var names []string
	for n := range l.kernels {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Kernel returns an entry point by its host name.
func (l *Library) Kernel(name string) (*Kernel, error) {
	k := l.kernels[name]
	if k == nil {
		return nil, fmt.Errorf("metal emulator: the library has no kernel %q", name)
	}
	return k, nil
}

// Name returns the host name.
func (k *Kernel) Name() string { return k.name }

// MaxThreads is the most threads that a threadgroup may have.
func (k *Kernel) MaxThreads() int {
	if k.mostThreads == 0 {
		return 1024
	}
	return k.mostThreads
}

// Bindings returns what a dispatch has to set, in the order of the parameters.
func (k *Kernel) Bindings() []Binding { return slices.Clone(k.bindings) }

// Arg is what is bound at an index: memory, or bytes that a dispatch copies.
type Arg struct {
	Index   int
	Pointer unsafe.Pointer // what the kernel gets
	Length  int            // bytes from Pointer to the end of its allocation
	Base    unsafe.Pointer // start of the allocation; nil: Pointer
	Bytes   []byte         // where Pointer is nil
}

// Launch is one dispatch of whole threadgroups.
type Launch struct {
	Groups, Threads [3]int // threadgroups, and threads in each
	Args            []Arg
	Threadgroup     map[int]int // bytes of threadgroup memory by index
	Seed            uint64      // 0: threadgroups, simdgroups and threads run in order
}

// dispatch mirrors Dispatch of runtime/dispatch.cpp.
type dispatch struct {
	kernel      *byte
	seed        uint64
	pointer     [maxBuffers]unsafe.Pointer
	base        [maxBuffers]unsafe.Pointer
	length      [maxBuffers]uint64
	bytes       [maxBuffers]uint32
	threadgroup [maxBuffers]uint32
	groups      [3]uint32
	threads     [3]uint32
}

// Run runs the kernel to its end. The error is the first thing that it did
// wrong, or what is wrong with the launch.
func (k *Kernel) Run(l Launch) error {
	var pins runtime.Pinner
	defer pins.Unpin()
	name := append([]byte(k.name), 0)
	d := &dispatch{kernel: &name[0], seed: l.Seed}
	pins.Pin(d.kernel)
	pins.Pin(d)
	for _, a := range l.Args {
		if a.Index < 0 || a.Index >= maxBuffers {
			return fmt.Errorf("%s: index %d, 0 to %d can be bound", k.name, a.Index, maxBuffers-1)
		}
		p, base, n := a.Pointer, a.Base, a.Length
		if p == nil {
			if len(a.Bytes) == 0 {
				continue
			}
			data := aligned(a.Bytes)
			p, n = unsafe.Pointer(&data[0]), len(data)
			base = p
			d.bytes[a.Index] = 1
			pins.Pin(p)
		}
		if base == nil {
			base = p
		}
		if n < 0 || uintptr(base) > uintptr(p) {
			return fmt.Errorf("%s: the memory at index %d ends before it begins", k.name, a.Index)
		}
		d.pointer[a.Index], d.base[a.Index], d.length[a.Index] = p, base, uint64(n)
	}
	for i, n := range l.Threadgroup {
		if i < 0 || i >= maxBuffers || n < 0 {
			return fmt.Errorf("%s: %d bytes of threadgroup memory at index %d", k.name, n, i)
		}
		d.threadgroup[i] = uint32(n)
	}
	for i := range 3 {
		if l.Groups[i] < 0 || l.Threads[i] < 0 {
			return fmt.Errorf("%s: %v threadgroups of %v threads", k.name, l.Groups, l.Threads)
		}
		d.groups[i], d.threads[i] = uint32(l.Groups[i]), uint32(l.Threads[i])
	}
	message := make([]byte, 2048)
	k.library.mu.Lock()
	defer k.library.mu.Unlock()
	n := k.library.dispatch(unsafe.Pointer(d), &message[0], uintptr(len(message)))
	runtime.KeepAlive(l.Args)
	if n != 0 {
		return errors.New(string(message[:n]))
	}
	return nil
}

// aligned copies bytes to an address that any struct may have.
func aligned(data []byte) []byte {
	const to = 256
	memory := make([]byte, len(data)+to)
	skip := int(-uintptr(unsafe.Pointer(&memory[0])) % to)
	copy(memory[skip:], data)
	return memory[skip : skip+len(data) : skip+len(data)]
}
