package fakeobjc

import (
	"unsafe"

	"windrow/metal/emulator"
)

// Emulated compiles sources for the CPU, or of them the kernels of these names.
// The seed decides the order of threads and threadgroups. A library that asks for
// safe math gets the plain build in place of the fast one.
func Emulated(b emulator.Build, seed uint64, only ...string) Compiler {
	return func(source string, safeMath bool) (Library, error) {
		build := b
		if safeMath && b == emulator.Fast {
			build = emulator.Plain
		}
		l, err := emulator.Compile(source, build, only...)
		if err != nil {
			return nil, err
		}
		return emulated{l, seed}, nil
	}
}

type emulated struct {
	library *emulator.Library
	seed    uint64
}

func (l emulated) Kernels() []string { return l.library.Kernels() }

func (l emulated) Kernel(name string) Kernel {
	k, err := l.library.Kernel(name)
	if err != nil {
		return nil
	}
	return emulatedKernel{k, l.seed}
}

type emulatedKernel struct {
	*emulator.Kernel
	seed uint64
}

func (k emulatedKernel) Bindings() []Binding {
	var list []Binding
	for _, b := range k.Kernel.Bindings() {
		list = append(list, Binding{Index: b.Index, Threadgroup: b.Kind == emulator.Threadgroup, Size: b.Size})
	}
	return list
}

func (k emulatedKernel) Run(l Launch) error {
	e := emulator.Launch{Groups: l.Groups, Threads: l.Threads, Threadgroup: l.Threadgroup, Seed: k.seed}
	for _, a := range l.Args {
		if a.Allocation == nil {
			e.Args = append(e.Args, emulator.Arg{Index: a.Index, Bytes: a.Memory})
			continue
		}
		e.Args = append(e.Args, emulator.Arg{
			Index: a.Index, Pointer: unsafe.Pointer(&a.Memory[0]), Length: len(a.Memory), Base: unsafe.Pointer(&a.Allocation[0]),
		})
	}
	return k.Kernel.Run(e)
}
