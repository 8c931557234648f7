package fakeobjc

import (
	"errors"
	"time"
)

// most is how many command buffers a queue has: with that many under way the
// real one makes its caller wait for ever.
const most = 64

// command is a command buffer.
type command struct {
	encoder    *encoder // that is open
	work       []launch
	committed  bool
	done       bool
	err        error
	start, end float64
}

var began = time.Now()

func init() {
	methods["MTLCommandQueue"] = map[string]method{
		"commandBufferWithUnretainedReferences": func(f *Fake, _ *object, _ []uintptr) uintptr {
			n := 0
			for _, o := range f.objects {
				if o.class == "MTLCommandBuffer" {
					n++
				}
			}
			if n >= most {
				f.bad("%d command buffers under way: Metal would wait for ever", n)
			}
			o := f.autoreleased("MTLCommandBuffer")
			o.data = &command{}
			return o.id
		},
	}
	methods["MTLCommandBuffer"] = map[string]method{
		"computeCommandEncoder": func(f *Fake, o *object, _ []uintptr) uintptr {
			c := o.data.(*command)
			if c.committed || c.encoder != nil {
				f.bad("an encoder of a command buffer that is committed or has one open")
				return 0
			}
			e := f.autoreleased("MTLComputeCommandEncoder")
			c.encoder = &encoder{command: c}
			e.data = c.encoder
			return e.id
		},
		"commit":             func(f *Fake, o *object, _ []uintptr) uintptr { return f.commit(o.data.(*command)) },
		"waitUntilCompleted": func(f *Fake, o *object, _ []uintptr) uintptr { return f.wait(o.data.(*command)) },
		"status": func(_ *Fake, o *object, _ []uintptr) uintptr {
			c := o.data.(*command)
			switch {
			case c.err != nil:
				return 5
			case c.done:
				return 4
			case c.committed:
				return 2
			}
			return 0
		},
		"error": func(f *Fake, o *object, _ []uintptr) uintptr {
			c := o.data.(*command)
			if c.err == nil {
				return 0
			}
			e := f.autoreleased("NSError")
			e.text = c.err.Error()
			return e.id
		},
		"GPUStartTime": elsewhere, // SendFloat
		"GPUEndTime":   elsewhere,
	}
}

func (f *Fake) commit(c *command) uintptr {
	switch {
	case c.committed:
		f.bad("commit of what is committed")
		return 0
	case c.encoder != nil:
		f.bad("commit with an encoder open")
		return 0
	}
	c.committed = true
	f.commits++
	if f.commits == f.options.FailCommit {
		c.err = errors.New("caused GPU Timeout Error (fake)")
	}
	f.queue = append(f.queue, c)
	return 0
}

// wait does the work of the queue up to c's.
func (f *Fake) wait(c *command) uintptr {
	if !c.committed {
		f.bad("waitUntilCompleted before commit: it would not return")
		return 0
	}
	for !c.done {
		next := f.queue[0]
		f.queue = f.queue[1:]
		next.start = time.Since(began).Seconds()
		for i := 0; i < len(next.work) && next.err == nil; i++ {
			next.err = next.work[i].run(f)
		}
		next.end = time.Since(began).Seconds()
		next.done = true
		next.work = nil
	}
	return 0
}
