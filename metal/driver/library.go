package driver

import (
	"fmt"
	"strings"
	"unsafe"
)

const (
	languageVersion = 3<<16 + 1 // MTLLanguageVersion3_1: bfloat
	mathModeSafe    = 0         // MTLMathModeSafe
	mathModeFast    = 2         // MTLMathModeFast
	simdWidth       = 32        // threads of a simdgroup that kernels are written for
)

// LibraryOptions say how a library is compiled.
type LibraryOptions struct {
	// Name is what errors call the library.
	Name string
	// SafeMath keeps to IEEE 754: infinities and NaN are what they are, and
	// sums stay in their order. Without it the compiler may assume neither.
	SafeMath bool
}

// CompileError is the error of a source that does not compile.
type CompileError struct {
	Name string // of the library
	Log  string // what the compiler says, many lines
}

// Error is one line: the compiler's first error.
func (e *CompileError) Error() string {
	first := ""
	for line := range strings.Lines(e.Log) {
		line = strings.TrimSpace(line)
		if first == "" {
			first = line
		}
		if strings.Contains(line, "error:") {
			first = line
			break
		}
	}
	return fmt.Sprintf("metal: %s does not compile: %s", e.Name, first)
}

// Library is a compiled source.
type Library struct {
	device *Device
	id     uintptr
	name   string
}

// NewLibrary compiles a source in Metal Shading Language 3.1. The error of one
// that does not compile is a [*CompileError].
func (d *Device) NewLibrary(source string, o LibraryOptions) (*Library, error) {
	var l *Library
	var err error
	r := d.rt
	r.Pool(func() {
		options := r.send(r.send(r.classes[classCompileOptions], selAlloc), selInit)
		defer r.send(options, selRelease)
		r.send(options, selSetLanguageVersion, languageVersion)
		mode, fast := uintptr(mathModeFast), uintptr(1)
		if o.SafeMath {
			mode, fast = mathModeSafe, 0
		}
		if r.responds(options, selSetMathMode) { // macOS 15
			r.send(options, selSetMathMode, mode)
		} else {
			r.send(options, selSetFastMathEnabled, fast)
		}
		// Warnings come as an error too, beside a library.
		failure := new(uintptr)
		id := r.send(d.id, selNewLibrary, r.string(source), options, uintptr(unsafe.Pointer(failure)))
		if id == 0 {
			log := "Metal does not say why"
			if *failure != 0 {
				log = r.text(r.send(*failure, selLocalizedDescription))
			}
			err = &CompileError{o.Name, log}
			return
		}
		l = &Library{d, id, o.Name}
	})
	return l, err
}

// Kernels lists the names of the library's kernels.
func (l *Library) Kernels() (names []string) {
	r := l.device.rt
	r.Pool(func() {
		list := r.send(l.id, selFunctionNames)
		for i := range r.send(list, selCount) {
			names = append(names, r.text(r.send(list, selObjectAtIndex, i)))
		}
	})
	return names
}

// Release gives the library up. Its pipelines stay.
func (l *Library) Release() {
	if l.id != 0 {
		l.device.rt.send(l.id, selRelease)
		l.id = 0
	}
}

// Pipeline is a kernel made ready to run.
type Pipeline struct {
	resource
	name            string
	maxThreads      int
	threadgroupSize int
}

// Pipeline makes the kernel of a name ready to run.
func (l *Library) Pipeline(name string) (*Pipeline, error) {
	var p *Pipeline
	var err error
	r := l.device.rt
	r.Pool(func() {
		function := r.send(l.id, selNewFunction, r.string(name))
		if function == 0 {
			err = fmt.Errorf("metal: %s has no kernel %s", l.name, name)
			return
		}
		defer r.send(function, selRelease)
		failure := new(uintptr)
		id := r.send(l.device.id, selNewPipeline, function, uintptr(unsafe.Pointer(failure)))
		if id == 0 {
			err = r.failure("kernel "+name+" of "+l.name, *failure)
			return
		}
		p = &Pipeline{
			resource: resource{rt: r, id: id}, name: name,
			maxThreads:      int(r.send(id, selMaxTotalThreads)),
			threadgroupSize: int(r.send(id, selStaticThreadgroupMemory)),
		}
		if width := r.send(id, selThreadExecutionWidth); width != simdWidth {
			err = fmt.Errorf("metal: simdgroups of kernel %s have %d threads; it is written for %d", name, width, simdWidth)
			p.Release()
		}
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Name is the kernel's name.
func (p *Pipeline) Name() string { return p.name }

// MaxThreads is the largest threadgroup that the kernel's registers allow.
func (p *Pipeline) MaxThreads() int { return p.maxThreads }

// ThreadgroupMemory is how many bytes a threadgroup the kernel itself declares.
func (p *Pipeline) ThreadgroupMemory() int { return p.threadgroupSize }
