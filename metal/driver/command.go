package driver

import (
	"fmt"
)

const statusCompleted = 4 // MTLCommandBufferStatusCompleted

// CommandBuffer is a list of work for the GPU, done as one.
type CommandBuffer struct {
	rt        *Runtime
	id        uintptr
	encoder   Encoder
	committed bool
	resources []*resource // kept until the work is done
}

// Times are when the GPU began and ended, in seconds since the machine's start.
type Times struct{ Start, End float64 }

// NewCommandBuffer makes an empty command buffer. It ends with Wait, or with
// Discard.
func (d *Device) NewCommandBuffer() (*CommandBuffer, error) {
	c := &CommandBuffer{rt: d.rt}
	d.rt.Pool(func() {
		// Autoreleased: an own reference outlives the pool.
		if c.id = d.rt.send(d.queue, selCommandBuffer); c.id != 0 {
			d.rt.send(c.id, selRetain)
		}
	})
	if c.id == 0 {
		return nil, fmt.Errorf("metal: %s gives no command buffer", d.info.Name)
	}
	return c, nil
}

// Encoder begins a list of dispatches that run one after the other, each seeing
// what those before it wrote. There is one at a time, until its End.
func (c *CommandBuffer) Encoder() (*Encoder, error) {
	if c.encoder.id != 0 {
		return nil, fmt.Errorf("metal: a second encoder before the end of the first")
	}
	c.rt.Pool(func() {
		id := c.rt.send(c.id, selComputeCommandEncoder)
		if id != 0 {
			c.rt.send(id, selRetain)
		}
		c.encoder = Encoder{commands: c, rt: c.rt, id: id}
	})
	if c.encoder.id == 0 {
		return nil, fmt.Errorf("metal: a command buffer gives no encoder")
	}
	return &c.encoder, nil
}

// Commit hands the work to the GPU.
func (c *CommandBuffer) Commit() {
	c.committed = true
	c.rt.send(c.id, selCommit)
}

// Wait waits until the committed work is done, and says when the GPU did it.
// The command buffer is gone then.
func (c *CommandBuffer) Wait() (Times, error) {
	var t Times
	var err error
	c.rt.Pool(func() {
		c.rt.send(c.id, selWaitUntilCompleted)
		if c.rt.send(c.id, selStatus) != statusCompleted {
			err = c.rt.failure("the GPU's work", c.rt.send(c.id, selError))
		}
		start, end := c.rt.selectors[selGPUStartTime], c.rt.selectors[selGPUEndTime]
		t = Times{c.rt.api.SendFloat(c.id, start), c.rt.api.SendFloat(c.id, end)}
	})
	c.release()
	return t, err
}

// Discard ends a command buffer: one that was not committed does nothing, and
// one that was is waited for. After Wait it has no effect.
func (c *CommandBuffer) Discard() {
	switch {
	case c.id == 0:
	case c.committed:
		_, _ = c.Wait()
	default:
		c.encoder.End()
		c.release()
	}
}

func (c *CommandBuffer) release() {
	c.rt.send(c.id, selRelease)
	c.id = 0
	for _, o := range c.resources {
		o.user = nil
		o.drop(1)
	}
	c.resources = nil
}

// keep holds a resource until the work is done.
func (c *CommandBuffer) keep(o *resource) {
	if o.user != c {
		o.user = c
		o.uses++
		c.resources = append(c.resources, o)
	}
}
