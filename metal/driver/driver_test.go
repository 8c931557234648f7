package driver_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"windrow/internal/testhelp"
	"windrow/metal/driver"
	"windrow/metal/fakeobjc"
)

// source stands for kernels in Go: scale sets y = x·factor.
const source = "kernel scale"

// goKernel is a kernel in Go.
type goKernel struct {
	bindings []fakeobjc.Binding
	run      func(l fakeobjc.Launch) error
}

func (k goKernel) Bindings() []fakeobjc.Binding     { return k.bindings }
func (k goKernel) Run(l fakeobjc.Launch) error      { return k.run(l) }
func (l goLibrary) Kernel(s string) fakeobjc.Kernel { return l[s] }
func (l goLibrary) Kernels() []string               { return slices.Sorted(maps.Keys(l)) }

type goLibrary map[string]fakeobjc.Kernel

// compile makes the library of source; safe tells of the math mode asked for.
func compile(safe *bool) fakeobjc.Compiler {
	return func(text string, safeMath bool) (fakeobjc.Library, error) {
		if text != source {
			return nil, errors.New("program_source:1:1: warning: odd\nprogram_source:3:7: error: unknown type name 'flaot'\n  flaot x;\n  ^")
		}
		if safe != nil {
			*safe = safeMath
		}
		return goLibrary{"scale": goKernel{
			bindings: []fakeobjc.Binding{{Index: 0, Size: 4}, {Index: 1, Size: 4}, {Index: 2, Size: 4}, {Index: 0, Threadgroup: true}},
			run: func(l fakeobjc.Launch) error {
				x, y, p := l.Args[0].Memory, l.Args[1].Memory, l.Args[2].Memory
				if l.Threadgroup[0] != 64 {
					return fmt.Errorf("%d bytes of threadgroup memory", l.Threadgroup[0])
				}
				for i := range l.Groups[0] * l.Threads[0] {
					put(y, i, get(x, i)*get(p, 0))
				}
				return nil
			},
		}}, nil
	}
}

func get(b []byte, i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
}

func put(b []byte, i int, x float32) { binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(x)) }

// open opens the fake device; at the test's end nothing may be left of it.
func open(t *testing.T, o fakeobjc.Options) (*fakeobjc.Fake, *driver.Device) {
	t.Helper()
	if o.Compile == nil {
		o.Compile = compile(nil)
	}
	f := fakeobjc.Start(t, o)
	d, err := driver.New(f).OpenDevice()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return f, d
}

func buffer(t *testing.T, d *driver.Device, bytes int) *driver.Buffer {
	t.Helper()
	b, err := d.NewBuffer(bytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Release)
	return b
}

func pipeline(t *testing.T, d *driver.Device) *driver.Pipeline {
	t.Helper()
	l, err := d.NewLibrary(source, driver.LibraryOptions{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	if names := l.Kernels(); !slices.Equal(names, []string{"scale"}) {
		t.Errorf("kernels %v", names)
	}
	p, err := l.Pipeline("scale")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Release)
	return p
}

// scale encodes y = x·factor for 8 elements.
func scale(t *testing.T, c *driver.CommandBuffer, p *driver.Pipeline, x, y *driver.Buffer, factor *float32) {
	t.Helper()
	e, err := c.Encoder()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Encoder(); err == nil {
		t.Error("a second encoder before the end of the first")
	}
	e.SetPipeline(p)
	e.SetBuffer(0, x, 0)
	e.SetBuffer(1, y, 4)
	e.SetBytes(2, unsafe.Pointer(factor), 4)
	e.SetThreadgroupMemory(0, 64)
	e.Dispatch(driver.Size{Width: 2, Height: 1, Depth: 1}, driver.Size{Width: 4, Height: 1, Depth: 1})
	e.End()
}

func commands(t *testing.T, d *driver.Device) *driver.CommandBuffer {
	t.Helper()
	c, err := d.NewCommandBuffer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Discard)
	return c
}

// TestSelectors compares the spelling of all messages and classes with the
// fake's, which was written from Apple's headers.
func TestSelectors(t *testing.T) {
	for i, name := range driver.SelectorNames {
		if !fakeobjc.Knows(name) {
			t.Errorf("message %d, %q: no class has it", i, name)
		}
		if slices.Index(driver.SelectorNames[:], name) != i {
			t.Errorf("message %q twice", name)
		}
	}
	f := fakeobjc.New(fakeobjc.Options{})
	for _, name := range driver.ClassNames {
		if f.Class(name) == 0 {
			t.Errorf("no class %s", name)
		}
	}
}

func TestOpenElsewhere(t *testing.T) {
	if runtime.GOOS == "darwin" {
		t.Skip("this is macOS")
	}
	_, err := driver.Open()
	testhelp.OneLineFrom(t, "metal: ", err, "not macOS")
}

func TestDeviceInfo(t *testing.T) {
	_, d := open(t, fakeobjc.Options{Family: 9, MaxBufferLength: 1 << 20, NoDefault: true})
	want := driver.Info{
		Name: "Fake GPU", Architecture: "applegpu_fake", Family: 9, System: "Version 14.6 (fake)", MaxBufferLength: 1 << 20,
		WorkingSet: 12 << 30, ThreadgroupMemory: 32 << 10, UnifiedMemory: true,
	}
	if d.Info() != want {
		t.Errorf("got  %+v\nwant %+v", d.Info(), want)
	}
}

func TestNoUsableDevice(t *testing.T) {
	for _, c := range []struct {
		o    fakeobjc.Options
		word string
	}{
		{fakeobjc.Options{NoDevice: true}, "on this machine"},
		{fakeobjc.Options{Family: 5}, "M1"},
		{fakeobjc.Options{Missing: []string{"architecture"}}, "macOS 14"},
	} {
		_, err := driver.New(fakeobjc.Start(t, c.o)).OpenDevice()
		testhelp.OneLineFrom(t, "metal: ", err, c.word)
		if !errors.Is(err, driver.ErrNoDevice) {
			t.Errorf("%v is not ErrNoDevice", err)
		}
	}
}

// TestDispatch: the device sees what was written before Commit, and the bytes of
// SetBytes as they were when set; its results are there after Wait.
func TestDispatch(t *testing.T) {
	_, d := open(t, fakeobjc.Options{})
	p, x, y := pipeline(t, d), buffer(t, d, 32), buffer(t, d, 36)
	if p.Name() != "scale" || p.MaxThreads() != 1024 || p.ThreadgroupMemory() != 0 {
		t.Errorf("pipeline %s: %d threads, %d bytes", p.Name(), p.MaxThreads(), p.ThreadgroupMemory())
	}
	for round := range 2 { // pipelines and buffers serve again
		c := commands(t, d)
		factor := float32(2)
		scale(t, c, p, x, y, &factor)
		factor = 3
		for i := range 8 {
			put(x.Bytes(), i, float32(i+round))
			put(y.Bytes(), i+1, -1)
		}
		c.Commit()
		if got := get(y.Bytes(), 3); got != -1 {
			t.Errorf("%v before Wait", got)
		}
		times, err := c.Wait()
		if err != nil {
			t.Fatal(err)
		}
		if times.End < times.Start || times.Start <= 0 {
			t.Errorf("the GPU worked from %v to %v", times.Start, times.End)
		}
		for i := range 8 {
			if got := get(y.Bytes(), i+1); got != 2*float32(i+round) {
				t.Errorf("element %d: %v", i, got)
			}
		}
	}
}

// TestReleaseWhileRunning: what was encoded runs although its buffers and its
// pipeline were given up.
func TestReleaseWhileRunning(t *testing.T) {
	f, d := open(t, fakeobjc.Options{})
	p, x, y := pipeline(t, d), buffer(t, d, 32), buffer(t, d, 36)
	factor := float32(2)
	put(x.Bytes(), 0, 21)
	result := y.Bytes()
	first, second := commands(t, d), commands(t, d)
	for _, c := range []*driver.CommandBuffer{first, second} {
		scale(t, c, p, x, y, &factor)
		c.Commit()
	}
	x.Release()
	y.Release()
	p.Release()
	if n := f.Allocated(); n != 68 {
		t.Errorf("%d bytes of buffers are left, want 68", n)
	}
	if _, err := first.Wait(); err != nil {
		t.Error(err)
	}
	if got := get(result, 1); got != 42 {
		t.Errorf("got %v", got)
	}
	if _, err := second.Wait(); err != nil {
		t.Error(err)
	}
	if n := f.Allocated(); n != 0 {
		t.Errorf("%d bytes of buffers are left", n)
	}
}

// TestDiscard: command buffers that are given up leave nothing behind, whatever
// state they are in.
func TestDiscard(t *testing.T) {
	f, d := open(t, fakeobjc.Options{})
	p, x, y := pipeline(t, d), buffer(t, d, 32), buffer(t, d, 36)
	factor := float32(2)
	empty, open, ended, committed := commands(t, d), commands(t, d), commands(t, d), commands(t, d)
	if _, err := open.Encoder(); err != nil {
		t.Fatal(err)
	}
	scale(t, ended, p, x, y, &factor)
	scale(t, committed, p, x, y, &factor)
	committed.Commit()
	for _, c := range []*driver.CommandBuffer{empty, open, ended, committed} {
		c.Discard()
		c.Discard()
	}
	if n := f.Count("waitUntilCompleted"); n != 1 {
		t.Errorf("%d waits, want 1", n)
	}
}

func TestFailedWork(t *testing.T) {
	_, d := open(t, fakeobjc.Options{FailCommit: 1})
	p, x, y := pipeline(t, d), buffer(t, d, 32), buffer(t, d, 36)
	factor := float32(2)
	for i := range 2 {
		c := commands(t, d)
		scale(t, c, p, x, y, &factor)
		c.Commit()
		_, err := c.Wait()
		if i == 0 {
			testhelp.OneLineFrom(t, "metal: ", err, "GPU", "Timeout", "code 2")
		} else if err != nil {
			t.Errorf("after a failure: %v", err)
		}
	}
}

func TestCompile(t *testing.T) {
	_, d := open(t, fakeobjc.Options{})
	_, err := d.NewLibrary("flaot x;", driver.LibraryOptions{Name: "rows.metal"})
	testhelp.OneLineFrom(t, "metal: ", err, "rows.metal", "3:7", "flaot")
	var c *driver.CompileError
	if !errors.As(err, &c) || !strings.Contains(c.Log, "warning: odd\n") {
		t.Errorf("%#v is no compile error with the compiler's whole text", err)
	}
	l, err := d.NewLibrary(source, driver.LibraryOptions{Name: "rows.metal"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	_, err = l.Pipeline("scael")
	testhelp.OneLineFrom(t, "metal: ", err, "rows.metal", "scael")
}

// TestMathMode: fast unless safe is asked for, by the message of macOS 15 or by
// that of older systems.
func TestMathMode(t *testing.T) {
	for _, missing := range [][]string{nil, {"setMathMode:"}} {
		for _, want := range []bool{false, true} {
			safe := !want
			_, d := open(t, fakeobjc.Options{Compile: compile(&safe), Missing: missing})
			l, err := d.NewLibrary(source, driver.LibraryOptions{SafeMath: want})
			if err != nil {
				t.Fatal(err)
			}
			l.Release()
			if safe != want {
				t.Errorf("without %v: safe math %t, want %t", missing, safe, want)
			}
		}
	}
}

func TestSimdgroups(t *testing.T) {
	_, d := open(t, fakeobjc.Options{SimdWidth: 64})
	l, err := d.NewLibrary(source, driver.LibraryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	_, err = l.Pipeline("scale")
	testhelp.OneLineFrom(t, "metal: ", err, "64", "32")
}

func TestBuffers(t *testing.T) {
	f, d := open(t, fakeobjc.Options{MaxBufferLength: 1 << 20, Memory: 3 << 19})
	b := buffer(t, d, 1<<20)
	if b.Length() != 1<<20 || len(b.Bytes()) != 1<<20 {
		t.Errorf("%d bytes, %d to be seen", b.Length(), len(b.Bytes()))
	}
	for _, n := range []int{-1, 0, 1<<20 + 1} {
		_, err := d.NewBuffer(n)
		testhelp.OneLineFrom(t, "metal: ", err, fmt.Sprint(n), "Fake GPU")
	}
	_, err := d.NewBuffer(1 << 20)
	testhelp.OneLineFrom(t, "metal: ", err, "memory", "1048576")

	memory := pages(4)
	for _, m := range [][]byte{memory[4096:], memory[:driver.PageSize-1], nil} {
		if _, err := d.NewBufferNoCopy(m); err == nil {
			t.Errorf("%d bytes that are no whole pages are taken", len(m))
		}
	}
	n, err := d.NewBufferNoCopy(memory[:2*driver.PageSize])
	if err != nil {
		t.Fatal(err)
	}
	memory[5] = 7
	if n.Length() != 2*driver.PageSize || n.Bytes()[5] != 7 {
		t.Error("a buffer without a copy is not the memory that it was made of")
	}
	n.Release()
	n.Release()
	if f.Allocated() != 1<<20 {
		t.Errorf("%d bytes of buffers", f.Allocated())
	}
}

// pages is n pages, aligned.
func pages(n int) []byte {
	all := make([]byte, (n+1)*driver.PageSize)
	skip := int(-uintptr(unsafe.Pointer(&all[0])) & (driver.PageSize - 1))
	return all[skip : skip+n*driver.PageSize]
}
