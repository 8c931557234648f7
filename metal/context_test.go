package metal

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"

	"windrow/metal/driver"
	"windrow/metal/fakeobjc"
)

// countingGPU is a gpu over a fake device with the kernel add of addLibrary,
// which takes messages from one thread alone.
func countingGPU(t *testing.T, o fakeobjc.Options) (*gpu, *fakeobjc.Fake) {
	t.Helper()
	o.Compile, o.OneThread = addLibrary, true
	f := fakeobjc.Start(t, o)
	g, err := startGPU(func() (*device, error) {
		d, err := newDevice(driver.New(f))
		if err == nil {
			d.source = addSource
		}
		return d, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return g, f
}

// add runs one job: a forward of its own memory.
func add(g *gpu, n float32) (sum float32, err error) {
	refused := g.do(func() {
		var v view
		if v, err = g.device.alloc(8, elemF32); err != nil {
			return
		}
		defer g.device.free(v)
		f32s(v)[1] = n
		p := addParams{n: 1}
		for range 3 {
			if err = g.device.encode(func(e encoder) { e.dispatch(addDispatch(v, &p)) }); err != nil {
				return
			}
		}
		sum = f32s(v)[1]
	})
	return sum, errors.Join(refused, err)
}

// TestGPUConcurrent submits from several goroutines at once: one thread sends.
func TestGPUConcurrent(t *testing.T) {
	g, f := countingGPU(t, fakeobjc.Options{})
	var wait sync.WaitGroup
	for i := range 4 {
		wait.Go(func() {
			for j := range 20 {
				n := float32(100*i + j)
				if got, err := add(g, n); err != nil || got != n+3 {
					t.Errorf("%v, %v; want %v", got, err, n+3)
				}
			}
		})
	}
	wait.Wait()
	if err := g.close(); err != nil {
		t.Error(err)
	}
	if n := f.Count("commit"); n != 240 {
		t.Errorf("%d commits, want 240", n)
	}
	if n := f.Count("newLibraryWithSource:options:error:"); n != 1 {
		t.Errorf("%d compilations of one source", n)
	}
}

// TestGPUJobsThatFail: what a job does, the next finds the gpu usable.
func TestGPUJobsThatFail(t *testing.T) {
	g, _ := countingGPU(t, fakeobjc.Options{FailCommit: 1})
	if _, err := add(g, 1); err == nil || !strings.Contains(err.Error(), "Timeout") {
		t.Errorf("work that failed: %v", err)
	}

	func() {
		defer func() {
			if r := recover(); r != "a mistake" {
				t.Errorf("recovered %v", r)
			}
		}()
		_ = g.do(func() {
			_ = g.device.encode(func(encoder) { panic("a mistake") })
		})
		t.Error("a panic did not come out of do")
	}()

	// One job runs, another is cancelled while it waits for it, a third before.
	running, finish := make(chan bool), make(chan bool)
	done := make(chan error)
	go func() {
		done <- g.do(func() {
			close(running)
			<-finish
		})
	}()
	<-running
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		done <- g.doContext(ctx, func() { t.Error("a job ran that was cancelled") })
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("a job that was cancelled: %v", err)
	}
	close(finish)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := g.doContext(ctx, func() { t.Error("a job ran that was cancelled") }); !errors.Is(err, context.Canceled) {
		t.Errorf("a job of a cancelled context: %v", err)
	}

	if got, err := add(g, 5); err != nil || got != 8 {
		t.Errorf("after all that: %v, %v", got, err)
	}
	if err := g.close(); err != nil {
		t.Error(err)
	}
}

// TestGPUClose: closing waits for the job that runs; what comes later is
// refused.
func TestGPUClose(t *testing.T) {
	g, _ := countingGPU(t, fakeobjc.Options{})
	running, finish := make(chan bool), make(chan bool)
	first, closed := make(chan error), make(chan error)
	go func() {
		first <- g.do(func() {
			close(running)
			<-finish
		})
	}()
	<-running
	go func() { closed <- g.close() }()
	<-g.closed
	if _, err := add(g, 1); !errors.Is(err, errClosed) {
		t.Errorf("a job after close: %v", err)
	}
	select {
	case err := <-closed:
		t.Errorf("closed while a job runs: %v", err)
	default:
	}
	close(finish)
	if err := errors.Join(<-first, <-closed); err != nil {
		t.Error(err)
	}
	if err := g.close(); !errors.Is(err, errClosed) {
		t.Errorf("a second close: %v", err)
	}
}

// TestGPUEndedByJob: a job that ends its goroutine is told so, and nobody waits
// for ever.
func TestGPUEndedByJob(t *testing.T) {
	g, _ := countingGPU(t, fakeobjc.Options{})
	func() {
		defer func() {
			if r, ok := recover().(string); !ok || !strings.Contains(r, "ended") {
				t.Errorf("recovered %v", r)
			}
		}()
		_ = g.do(runtime.Goexit)
		t.Error("do returned")
	}()
	<-g.ended
	if _, err := add(g, 1); !errors.Is(err, errClosed) {
		t.Errorf("a job afterwards: %v", err)
	}
	if err := g.close(); err != nil {
		t.Error(err)
	}
}

// TestGPUShared: one device for all that use it, until the last closes it.
func TestGPUShared(t *testing.T) {
	f := fakeobjc.Start(t, fakeobjc.Options{OneThread: true})
	opened := 0
	open := func() (*device, error) {
		opened++
		return newDevice(driver.New(f))
	}
	a, err := shareGPU(open)
	if err != nil {
		t.Fatal(err)
	}
	b, err := shareGPU(open)
	if err != nil {
		t.Fatal(err)
	}
	if a != b || opened != 1 {
		t.Errorf("%d devices", opened)
	}
	if err := a.close(); err != nil {
		t.Error(err)
	}
	if err := b.do(func() {}); err != nil {
		t.Errorf("the other user: %v", err)
	}
	if err := b.close(); err != nil {
		t.Error(err)
	}
	if err := b.do(func() {}); !errors.Is(err, errClosed) {
		t.Errorf("after the last close: %v", err)
	}

	failure := errors.New("no device")
	if _, err := shareGPU(func() (*device, error) { return nil, failure }); err != failure {
		t.Errorf("got %v", err)
	}
}

func TestGPUOfNoDevice(t *testing.T) {
	_, err := newGPU(driver.New(fakeobjc.Start(t, fakeobjc.Options{NoDevice: true})))
	if !errors.Is(err, driver.ErrNoDevice) {
		t.Errorf("got %v", err)
	}
}

// newGPU opens the GPU of a runtime, for its caller alone.
func newGPU(rt *driver.Runtime) (*gpu, error) {
	return startGPU(func() (*device, error) { return newDevice(rt) })
}
