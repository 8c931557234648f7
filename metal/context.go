package metal

import (
	"context"
	"errors"
	"runtime"
	"sync"
)

// gpu is a device with the one goroutine, on a thread of its own, that sends it
// messages. Jobs of many goroutines queue for it.
type gpu struct {
	device *device // for jobs only
	jobs   chan *job
	closed chan struct{} // closed when no more jobs are taken
	ended  chan struct{} // closed when the goroutine has ended
	err    error         // of closing the device
	users  int           // that have not closed it; guarded by shared
}

// shared is the gpu of the process.
var shared struct {
	sync.Mutex
	gpu *gpu
}

// job is a function to run; done is closed when it has run or will not.
type job struct {
	ctx      context.Context
	run      func()
	done     chan struct{}
	err      error // it did not run
	panicked any
}

var errClosed = errors.New("metal: used after Close")

// openGPU opens this machine's GPU: all of a process that use it share one
// context and one goroutine. Each call is undone by one close.
func openGPU() (*gpu, error) { return shareGPU(openDevice) }

func shareGPU(open func() (*device, error)) (*gpu, error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.gpu == nil {
		g, err := startGPU(open)
		if err != nil {
			return nil, err
		}
		shared.gpu = g
	} else {
		shared.gpu.users++
	}
	return shared.gpu, nil
}

// startGPU opens a device on the goroutine that will use it.
func startGPU(open func() (*device, error)) (*gpu, error) {
	g := &gpu{jobs: make(chan *job), closed: make(chan struct{}), ended: make(chan struct{}), users: 1}
	opened := make(chan error)
	go func() {
		// The thread ends with the goroutine: it is not unlocked.
		runtime.LockOSThread()
		defer close(g.ended)
		var err error
		g.device, err = open()
		opened <- err
		if err == nil {
			defer func() { g.err = g.device.close() }()
			g.loop()
		}
	}()
	if err := <-opened; err != nil {
		return nil, err
	}
	return g, nil
}

func (g *gpu) loop() {
	for {
		select {
		case j := <-g.jobs:
			j.do()
		case <-g.closed:
			return
		}
	}
}

// do runs f on the goroutine of the device and waits for it. A panic of f comes
// out of do. The only error is that the gpu was closed before f began. A job
// must not call do.
func (g *gpu) do(f func()) error { return g.doContext(context.Background(), f) }

// doContext is do for callers that may lose patience: it gives up, with the
// error of ctx, while f has not begun. What has begun runs to its end.
func (g *gpu) doContext(ctx context.Context, f func()) error {
	j := &job{ctx: ctx, run: f, done: make(chan struct{})}
	select {
	case <-g.closed:
		return errClosed
	default:
	}
	select {
	case g.jobs <- j:
	case <-ctx.Done():
		return ctx.Err()
	case <-g.closed:
		return errClosed
	case <-g.ended: // by a job
		return errClosed
	}
	<-j.done
	if j.panicked != nil {
		panic(j.panicked)
	}
	return j.err
}

func (j *job) do() {
	returned := false
	defer func() {
		switch r := recover(); {
		case r != nil:
			j.panicked = r
		case !returned:
			j.panicked = "metal: a job ended the goroutine of the device"
		}
		close(j.done)
	}()
	if j.err = j.ctx.Err(); j.err == nil {
		j.run()
	}
	returned = true
}

// close undoes one opening. The last waits for the job that runs, refuses those
// that have not begun, and closes the device.
func (g *gpu) close() error {
	shared.Lock()
	defer shared.Unlock()
	if g.users--; g.users > 0 {
		return nil
	}
	if g.users < 0 {
		return errClosed
	}
	if shared.gpu == g {
		shared.gpu = nil
	}
	close(g.closed)
	<-g.ended
	return g.err
}
