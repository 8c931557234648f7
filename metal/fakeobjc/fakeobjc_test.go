package fakeobjc

import (
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"windrow/metal/driver"
)

// bench drives a Fake by hand, to make mistakes that the driver does not.
type bench struct {
	*Fake
	device, queue, pool uintptr
}

func (b *bench) send(id uintptr, name string, args ...uintptr) uintptr {
	return b.Send(id, b.Sel(name), args...)
}

// nothing is a kernel with a buffer of 8 bytes and threadgroup memory.
type nothing struct{ run func(l Launch) }

func (nothing) Bindings() []Binding {
	return []Binding{{Index: 1, Size: 8}, {Index: 0, Threadgroup: true}}
}
func (n nothing) Run(l Launch) error {
	if n.run != nil {
		n.run(l)
	}
	return nil
}

type only struct{ k Kernel }

func (o only) Kernel(string) Kernel { return o.k }
func (o only) Kernels() []string    { return nil }

func newBench(o Options, run func(l Launch)) *bench {
	o.Compile = func(string, bool) (Library, error) { return only{nothing{run}}, nil }
	b := &bench{Fake: New(o)}
	b.pool = b.PoolPush()
	b.device = b.SystemDefaultDevice()
	b.queue = b.send(b.device, "newCommandQueue")
	return b
}

//go:uintptrescapes
func (b *bench) text(p uintptr) uintptr {
	return b.send(b.Class("NSString"), "stringWithUTF8String:", p)
}

func (b *bench) string(s string) uintptr {
	c := append([]byte(s), 0)
	return b.text(uintptr(unsafe.Pointer(&c[0])))
}

func (b *bench) options() uintptr {
	o := b.send(b.send(b.Class("MTLCompileOptions"), "alloc"), "init")
	b.send(o, "setLanguageVersion:", languageVersion)
	return o
}

//go:uintptrescapes
func (b *bench) library(options, failure uintptr) uintptr {
	return b.send(b.device, "newLibraryWithSource:options:error:", b.string("source"), options, failure)
}

// pipeline makes one and leaves its library behind.
func (b *bench) pipeline() uintptr {
	options := b.options()
	l := b.library(options, uintptr(unsafe.Pointer(new(uintptr))))
	k := b.send(l, "newFunctionWithName:", b.string("nothing"))
	return b.makePipeline(k, uintptr(unsafe.Pointer(new(uintptr))))
}

//go:uintptrescapes
func (b *bench) makePipeline(k, failure uintptr) uintptr {
	return b.send(b.device, "newComputePipelineStateWithFunction:error:", k, failure)
}

func (b *bench) buffer(n uintptr) uintptr {
	return b.send(b.device, "newBufferWithLength:options:", n, 0)
}
func (b *bench) commands() uintptr {
	return b.send(b.queue, "commandBufferWithUnretainedReferences")
}
func (b *bench) encoder() uintptr { return b.send(b.commands(), "computeCommandEncoder") }

// ready is an encoder with all that a dispatch needs.
func (b *bench) ready(c uintptr) uintptr {
	e := b.send(c, "computeCommandEncoder")
	b.send(e, "setComputePipelineState:", b.pipeline())
	b.send(e, "setBuffer:offset:atIndex:", b.buffer(8), 0, 1)
	b.send(e, "setThreadgroupMemoryLength:atIndex:", 16, 0)
	return e
}

func (b *bench) dispatch(e uintptr, groups, threads uint64) {
	b.SendSizes(e, b.Sel("dispatchThreadgroups:threadsPerThreadgroup:"),
		&driver.Size{Width: groups, Height: 1, Depth: 1}, &driver.Size{Width: threads, Height: 1, Depth: 1})
}

// TestMistakes makes one mistake each, which must be the only one reported; the
// first rows make none.
func TestMistakes(t *testing.T) {
	runtime.LockOSThread() // pools belong to a thread
	defer runtime.UnlockOSThread()
	over := make([]byte, 5000)
	for _, c := range []struct {
		name, problem string
		do            func(b *bench)
	}{
		{"a whole dispatch", "", func(b *bench) {
			c := b.commands()
			e := b.ready(c)
			b.dispatch(e, 3, 64)
			b.send(e, "endEncoding")
			b.send(c, "commit")
			b.send(c, "waitUntilCompleted")
			b.SendFloat(c, b.Sel("GPUEndTime"))
		}},
		{"BOOL", "", func(b *bench) {
			if b.send(b.device, "supportsFamily:", 1007)&0xff != 1 || b.send(b.device, "supportsFamily:", 1008)&0xff != 0 {
				b.bad("families")
			}
		}},
		{"nil", "sent to nil", func(b *bench) { b.send(0, "commit") }},
		{"freed", "sent to a freed MTLBuffer", func(b *bench) {
			x := b.buffer(4)
			b.send(x, "release")
			b.send(x, "contents")
		}},
		{"no object", "no object", func(b *bench) { b.send(12345, "retain") }},
		{"spelling", "-[MTLDevice newCommandQueueue]: unrecognized", func(b *bench) { b.send(b.device, "newCommandQueueue") }},
		{"class", "-[MTLCommandQueue commit]: unrecognized", func(b *bench) { b.send(b.queue, "commit") }},
		{"missing", "-[MTLDevice architecture]: unrecognized", func(b *bench) {
			b.machine().Missing = []string{"architecture"}
			b.send(b.device, "architecture")
		}},
		{"arguments", "2 arguments given", func(b *bench) { b.send(b.device, "supportsFamily:", 1, 2) }},
		{"selector", "was not registered", func(b *bench) { b.Send(b.device, 9999) }},
		{"a double as a word", "takes or returns no word", func(b *bench) { b.send(b.commands(), "GPUStartTime") }},
		{"time before the end", "before the work is done", func(b *bench) { b.SendFloat(b.commands(), b.Sel("GPUStartTime")) }},
		{"no pool", "no pool in place", func(b *bench) {
			b.PoolPop(b.pool)
			b.commands()
			b.pool = b.PoolPush()
		}},
		{"pools out of order", "not the innermost", func(b *bench) {
			p := b.PoolPush()
			b.PoolPop(b.pool)
			b.PoolPop(p)
		}},
		{"a released pool", "sent to a freed MTLCommandBuffer", func(b *bench) {
			p := b.PoolPush()
			c := b.commands()
			b.PoolPop(p)
			b.send(c, "commit")
		}},
		{"another thread", "another thread", func(b *bench) {
			b.machine().OneThread = true
			b.send(b.device, "hasUnifiedMemory")
			done := make(chan bool)
			go func() {
				runtime.LockOSThread()
				b.send(b.device, "hasUnifiedMemory")
				close(done)
			}()
			<-done
		}},
		{"open encoder", "encoder open", func(b *bench) {
			c := b.commands()
			e := b.send(c, "computeCommandEncoder")
			b.send(c, "commit")
			b.send(e, "endEncoding")
		}},
		{"two encoders", "has one open", func(b *bench) {
			c := b.commands()
			e := b.send(c, "computeCommandEncoder")
			b.send(c, "computeCommandEncoder")
			b.send(e, "endEncoding")
		}},
		{"encoder never ended", "before endEncoding", func(b *bench) { b.encoder() }},
		{"ended encoder", "after endEncoding", func(b *bench) {
			e := b.encoder()
			b.send(e, "endEncoding")
			b.send(e, "setThreadgroupMemoryLength:atIndex:", 16, 0)
		}},
		{"dispatch after the end", "after endEncoding", func(b *bench) {
			e := b.ready(b.commands())
			b.send(e, "endEncoding")
			b.dispatch(e, 1, 1)
		}},
		{"two commits", "what is committed", func(b *bench) {
			c := b.commands()
			b.send(c, "commit")
			b.send(c, "commit")
			b.send(c, "waitUntilCompleted")
		}},
		{"wait before commit", "before commit", func(b *bench) { b.send(b.commands(), "waitUntilCompleted") }},
		{"too many command buffers", "wait for ever", func(b *bench) {
			for range most + 1 {
				b.commands()
			}
		}},
		{"no pipeline", "without a pipeline", func(b *bench) {
			e := b.encoder()
			b.dispatch(e, 1, 1)
			b.send(e, "endEncoding")
		}},
		{"threads", "1025 threads", func(b *bench) { b.broken(func(e uintptr) { b.dispatch(e, 1, 1025) }) }},
		{"no groups", "threadgroups", func(b *bench) { b.broken(func(e uintptr) { b.dispatch(e, 0, 1) }) }},
		{"no threads", "0 threads", func(b *bench) { b.broken(func(e uintptr) { b.dispatch(e, 1, 0) }) }},
		{"index", "index 31", func(b *bench) {
			b.broken(func(e uintptr) { b.send(e, "setBuffer:offset:atIndex:", b.buffer(8), 0, 31) })
		}},
		{"nil buffer", "nil where MTLBuffer", func(b *bench) { b.broken(func(e uintptr) { b.send(e, "setBuffer:offset:atIndex:", 0, 0, 1) }) }},
		{"other object", "MTLDevice where MTLBuffer", func(b *bench) {
			b.broken(func(e uintptr) { b.send(e, "setBuffer:offset:atIndex:", b.device, 0, 1) })
		}},
		{"offset", "offset 8 of a buffer of 8", func(b *bench) {
			b.broken(func(e uintptr) { b.send(e, "setBuffer:offset:atIndex:", b.buffer(8), 8, 1) })
		}},
		{"bytes", "setBytes of 5000", func(b *bench) {
			b.broken(func(e uintptr) { b.bytes(e, uintptr(unsafe.Pointer(&over[0])), 5000, 1) })
		}},
		{"threadgroup length", "memory of 20 bytes", func(b *bench) {
			b.broken(func(e uintptr) { b.send(e, "setThreadgroupMemoryLength:atIndex:", 20, 0) })
		}},
		{"small buffer", "7 bytes are bound to buffer 1, which has 8", func(b *bench) {
			b.broken(func(e uintptr) {
				b.send(e, "setBuffer:offset:atIndex:", b.buffer(8), 1, 1)
				b.dispatch(e, 1, 1)
			})
		}},
		{"a binding of the dispatch before", "buffer 1 is that of the dispatch before", func(b *bench) {
			b.broken(func(e uintptr) {
				b.dispatch(e, 1, 1)
				b.send(e, "setThreadgroupMemoryLength:atIndex:", 16, 0)
				b.dispatch(e, 1, 1)
			})
		}},
		{"no threadgroup memory", "no length of threadgroup memory 0", func(b *bench) {
			b.broken(func(e uintptr) {
				b.dispatch(e, 1, 1)
				b.send(e, "setBuffer:offset:atIndex:", b.buffer(8), 0, 1)
				b.dispatch(e, 1, 1)
			})
		}},
		{"nothing bound", "nothing is bound to buffer 1", func(b *bench) {
			e := b.encoder()
			b.send(e, "setComputePipelineState:", b.pipeline())
			b.send(e, "setThreadgroupMemoryLength:atIndex:", 16, 0)
			b.dispatch(e, 1, 1)
			b.send(e, "endEncoding")
		}},
		{"one binding more", "has no buffer 2", func(b *bench) {
			b.broken(func(e uintptr) {
				b.send(e, "setBuffer:offset:atIndex:", b.buffer(8), 0, 2)
				b.dispatch(e, 1, 1)
			})
		}},
		{"buffer freed before the work", "freed before the GPU was done", func(b *bench) {
			c := b.commands()
			e := b.ready(c)
			x := b.buffer(8)
			b.send(e, "setBuffer:offset:atIndex:", x, 0, 1)
			b.dispatch(e, 1, 1)
			b.send(e, "endEncoding")
			b.send(c, "commit")
			b.send(x, "release")
			b.send(c, "waitUntilCompleted")
		}},
		{"storage", "buffer options 0x20", func(b *bench) { b.send(b.device, "newBufferWithLength:options:", 4, 32) }},
		{"no whole pages", "not whole pages", func(b *bench) {
			b.send(b.device, "newBufferWithBytesNoCopy:length:options:deallocator:", driver.PageSize+64, driver.PageSize, 0, 0)
		}},
		{"deallocator", "a deallocator", func(b *bench) {
			b.send(b.device, "newBufferWithBytesNoCopy:length:options:deallocator:", driver.PageSize, driver.PageSize, 0, 1)
		}},
		{"language", "language version 0x0", func(b *bench) {
			o := b.send(b.send(b.Class("MTLCompileOptions"), "alloc"), "init")
			b.library(o, uintptr(unsafe.Pointer(new(uintptr))))
		}},
		{"init", "before init", func(b *bench) {
			o := b.send(b.Class("MTLCompileOptions"), "alloc")
			b.send(o, "setLanguageVersion:", languageVersion)
			b.library(o, uintptr(unsafe.Pointer(new(uintptr))))
		}},
	} {
		b := newBench(Options{}, nil)
		c.do(b)
		b.PoolPop(b.pool)
		problems := b.Problems()
		if c.problem == "" && len(problems) > 0 || c.problem != "" && (len(problems) != 1 || !strings.Contains(problems[0], c.problem)) {
			t.Errorf("%s: problems %q, want one with %q", c.name, problems, c.problem)
		}
	}
}

// broken prepares a dispatch, and ends what f does with it.
func (b *bench) broken(f func(e uintptr)) {
	e := b.ready(b.commands())
	f(e)
	b.send(e, "endEncoding")
}

//go:uintptrescapes
func (b *bench) bytes(e, p, n, index uintptr) {
	b.send(e, "setBytes:length:atIndex:", p, n, index)
}

func (b *bench) machine() *Options { return &b.Fake.options }

// TestLeft: what nobody gives back is told.
func TestLeft(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b := newBench(Options{}, nil)
	b.buffer(8)
	c := b.send(b.commands(), "retain")
	b.send(c, "commit")
	left := strings.Join(b.Left(), "\n")
	for _, want := range []string{"1 MTLDevice", "1 MTLCommandQueue", "1 MTLBuffer", "1 MTLCommandBuffer", "1 autorelease pool", "1 committed"} {
		if !strings.Contains(left, want) {
			t.Errorf("left is\n%s\nwithout %q", left, want)
		}
	}
	b.send(c, "waitUntilCompleted")
	b.send(c, "release")
	b.PoolPop(b.pool)
	left = strings.Join(b.Left(), "\n")
	if strings.Contains(left, "pool") || strings.Contains(left, "ommand buffer") || strings.Contains(left, "CommandBuffer") {
		t.Errorf("left is\n%s", left)
	}
}

// TestWritesBesideBuffer: a kernel that writes past its buffer fails, if not by
// far.
func TestWritesBesideBuffer(t *testing.T) {
	for _, at := range []int{-1, 0, 7, 8} {
		b := newBench(Options{}, func(l Launch) {
			m := l.Args[0].Memory
			*(*byte)(unsafe.Add(unsafe.Pointer(&m[0]), at)) = 1
		})
		c := b.commands()
		e := b.ready(c)
		b.dispatch(e, 1, 1)
		b.send(e, "endEncoding")
		b.send(c, "commit")
		b.send(c, "waitUntilCompleted")
		if inside := at >= 0 && at < 8; inside != (b.send(c, "error") == 0) {
			t.Errorf("a write at byte %d of 8: status %d", at, b.send(c, "status"))
		}
	}
}
