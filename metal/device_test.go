package metal

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"windrow/metal/driver"
	"windrow/metal/fakeobjc"
)

// addParams and addLibrary are a kernel in Go: x[offset] += n, with 20 bytes of
// threadgroup memory.
type addParams struct{ n float32 }

type addKernel struct{}

func (addKernel) Bindings() []fakeobjc.Binding {
	return []fakeobjc.Binding{{Index: 0, Size: 4}, {Index: 1, Size: 4}, {Index: 2, Size: 4}, {Index: 0, Threadgroup: true}}
}

func (addKernel) Run(l fakeobjc.Launch) error {
	if l.Threadgroup[0] != 32 {
		return fmt.Errorf("%d bytes of threadgroup memory", l.Threadgroup[0])
	}
	if n := len(l.Args[2].Memory); n != 16 {
		return fmt.Errorf("%d bytes where there is no view", n)
	}
	*(*float32)(unsafe.Pointer(&l.Args[0].Memory[0])) += *(*float32)(unsafe.Pointer(&l.Args[1].Memory[0]))
	return nil
}

func (k addKernel) Kernel(name string) fakeobjc.Kernel {
	if name != "add" {
		return nil
	}
	return k
}

func (addKernel) Kernels() []string { return []string{"add"} }

func addLibrary(string, bool) (fakeobjc.Library, error) { return addKernel{}, nil }

func addSource(file string) (string, error) {
	if file != "test" {
		return "", fmt.Errorf("metal: no source %s", file)
	}
	return "add", nil
}

func addDispatch(v view, p *addParams) dispatch {
	return dispatch{
		file: "test", kernel: "add", args: []arg{bind(v.at(4)), params(p), bind(view{})}, threadgroup: 20,
		groups: size3{1, 1, 1}, threads: size3{32, 2, 1},
	}
}

func f32s(v view) []float32 {
	b := v.bytes()
	return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), len(b)/4)
}

func addDevice(t *testing.T, o fakeobjc.Options) (*device, *fakeobjc.Fake) {
	t.Helper()
	o.Compile = addLibrary
	f := fakeobjc.Start(t, o)
	d, err := newDevice(driver.New(f))
	if err != nil {
		t.Fatal(err)
	}
	d.source = addSource
	t.Cleanup(func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	})
	return d, f
}

func testAlloc(t *testing.T, d *device, bytes int, e elem) view {
	t.Helper()
	v, err := d.alloc(bytes, e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.free(v) })
	return v
}

// TestEncode: many dispatches are one command buffer; what is compiled and made
// ready is kept.
func TestEncode(t *testing.T) {
	d, f := addDevice(t, fakeobjc.Options{})
	v := testAlloc(t, d, 8, elemF32)
	f32s(v)[1] = 0
	for range 3 {
		p := addParams{1.5}
		err := d.encode(func(e encoder) {
			for range 4 {
				e.dispatch(addDispatch(v, &p))
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if d.seconds <= 0 {
			t.Errorf("the GPU took %v s", d.seconds)
		}
	}
	if got := f32s(v)[1]; got != 18 {
		t.Errorf("got %v, want 18", got)
	}
	for message, want := range map[string]int{
		"commit": 3, "waitUntilCompleted": 3, "computeCommandEncoder": 3, "newLibraryWithSource:options:error:": 1,
		"newComputePipelineStateWithFunction:error:": 1, "setComputePipelineState:": 3,
		"dispatchThreadgroups:threadsPerThreadgroup:": 12,
	} {
		if got := f.Count(message); got != want {
			t.Errorf("%d times %s, want %d", got, message, want)
		}
	}
}

// TestEncodeRefuses: a dispatch that Metal would not take is an error, nothing
// of its command buffer runs, and the device stays usable.
func TestEncodeRefuses(t *testing.T) {
	d, f := addDevice(t, fakeobjc.Options{MaxThreads: 64})
	v := testAlloc(t, d, 8, elemF32)
	f32s(v)[1] = 1
	var p addParams
	var large [4100]byte
	for _, c := range []struct {
		word   string
		change func(x *dispatch)
	}{
		{"65 threads", func(x *dispatch) { x.threads = size3{65, 1, 1} }},
		{"groups", func(x *dispatch) { x.groups[1] = 0 }},
		{"threads", func(x *dispatch) { x.threads[2] = -1 }},
		{"32784 bytes", func(x *dispatch) { x.threadgroup = 32<<10 + 1 }},
		{"4100 bytes", func(x *dispatch) { x.args[1] = params(&large) }},
		{"byte 2", func(x *dispatch) { x.args[0].view.offset = 2 }},
		{"byte 8 of 8", func(x *dispatch) { x.args[0].view.offset = 8 }},
		{"byte -4", func(x *dispatch) { x.args[0].view.offset = -4 }},
		{"32 bindings", func(x *dispatch) { x.args = make([]arg, 32) }},
		{"kernel sub", func(x *dispatch) { x.kernel = "sub" }},
		{"source other", func(x *dispatch) { x.file = "other" }},
	} {
		err := d.encode(func(e encoder) {
			x := addDispatch(v, &p)
			e.dispatch(x)
			c.change(&x)
			e.dispatch(x)
			e.dispatch(addDispatch(v, &p))
		})
		if err == nil || !strings.Contains(err.Error(), c.word) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, want one line with %q", err, c.word)
		}
	}
	if n := f.Count("commit"); n != 0 {
		t.Errorf("%d commits", n)
	}
	p.n = 1
	if err := d.encode(func(e encoder) { e.dispatch(addDispatch(v, &p)) }); err != nil || f32s(v)[1] != 2 {
		t.Errorf("afterwards: %v, %v", err, f32s(v)[1])
	}
}

// TestWrap: memory of the host is used where it lies.
func TestWrap(t *testing.T) {
	d, f := addDevice(t, fakeobjc.Options{})
	all := make([]byte, 3*driver.PageSize)
	memory := all[-uintptr(unsafe.Pointer(&all[0]))&(driver.PageSize-1):][:driver.PageSize]
	v, err := d.wrap(memory, elemF32)
	if err != nil {
		t.Fatal(err)
	}
	p := addParams{3}
	if err := d.encode(func(e encoder) { e.dispatch(addDispatch(v, &p)) }); err != nil {
		t.Error(err)
	}
	if got := *(*float32)(unsafe.Pointer(&memory[4])); got != 3 {
		t.Errorf("got %v", got)
	}
	if f.Allocated() != driver.PageSize+16 || d.allocated != driver.PageSize {
		t.Errorf("%d and %d bytes allocated", f.Allocated(), d.allocated)
	}
	d.free(v)
	d.free(view{})
	if d.allocated != 0 {
		t.Errorf("%d bytes allocated", d.allocated)
	}
	if _, err := d.wrap(all[1:], elemF32); err == nil {
		t.Error("memory that is not whole pages is taken")
	}
}

func TestCloseTellsOfMemory(t *testing.T) {
	d, err := newDevice(driver.New(fakeobjc.New(fakeobjc.Options{})))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.alloc(24, elemF32); err != nil {
		t.Fatal(err)
	}
	if err := d.close(); err == nil || !strings.Contains(err.Error(), "24 bytes") {
		t.Errorf("closed with memory in use: %v", err)
	}
}
