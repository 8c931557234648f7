package cuda

import (
	"errors"

	"windrow/backend"
	"windrow/cuda/driver"
	"windrow/cuda/launch"
)

// stateBytes is what the states of all layers of a sequence take on the device:
// somewhat more than backend.Layout.StateBytes, which is counted (launch.DeltaShape.Size).
func stateBytes(l backend.Layout) (n int) {
	for _, s := range l.States() {
		fixed, byLog := launch.DeltaShape{StateShape: s}.Size()
		n += 4 * (fixed + l.LogRows*byLog)
	}
	return n
}

// statePool is where states of one size come from. What is given back serves the next
// sequence of that size. It is used under the lock of the marks.
type statePool struct {
	b    *Backend
	size int
}

// Take takes states that were given back, or memory of the device.
func (p statePool) Take() (driver.Ptr, error) {
	b := p.b
	if b.device == nil {
		return 0, errClosed
	}
	if free := b.freeStates[p.size]; len(free) > 0 {
		b.freeStates[p.size] = free[:len(free)-1]
		return free[len(free)-1], nil
	}
	b.device.Context.Enter()
	defer b.device.Context.Leave()
	at, err := b.device.Context.Alloc(p.size)
	if err == nil {
		b.owned = append(b.owned, at)
	}
	return at, err
}

// Give takes states back, which a kernel under way may still read: whoever writes them
// next does so behind it.
func (p statePool) Give(at driver.Ptr) {
	if p.b.device != nil {
		p.b.freeStates[p.size] = append(p.b.freeStates[p.size], at)
	}
}

// begin sees to pages and states for some rows behind base indices. Marks go where there
// is no memory.
func (c *storage) begin(base, rows int) error {
	for {
		err := c.Writable(base, base+rows)
		if err == nil && c.states != nil {
			err = c.states.Begin(base, rows)
		}
		if err == nil || c.states == nil || !lacksMemory(err) || !c.b.marks.Evict() {
			return err
		}
	}
}

func lacksMemory(err error) bool {
	lacks := (*backend.MemoryError)(nil)
	return errors.As(err, &lacks)
}

// StateStep is what the forward at work does with the states.
func (c *storage) StateStep() launch.StateStep {
	s := c.states.Step()
	y := launch.StateStep{To: *s.To, Settle: s.Settle, Folded: s.Folded}
	if s.From != nil {
		y.From = *s.From
	}
	return y
}

// Bytes is what pages and states take.
func (c *storage) Bytes() int64 {
	n := c.Table.Bytes()
	if c.states != nil {
		n += c.states.Bytes()
	}
	return n
}

// Reserve makes room for the first indices, or takes nothing.
func (c *storage) Reserve(tokens int) error {
	if c.states == nil {
		return c.Table.Reserve(tokens)
	}
	// Pages last: what is refused must take nothing.
	undo, err := c.states.Reserve(tokens)
	if err != nil {
		return err
	}
	if err := c.Table.Reserve(tokens); err != nil {
		undo()
		return err
	}
	return nil
}

// Reach is how far pages and states go back, both.
func (c *storage) Reach(n, base int) int {
	n = c.Table.Reach(n, base)
	if c.states == nil {
		return n
	}
	return c.Table.Reach(c.states.Reach(n), base)
}

// Truncate holds the states behind n indices until the next forward.
func (c *storage) Truncate(n int) {
	if c.states != nil {
		c.states.Truncate(n)
	}
}

// Mark keeps the states behind base indices.
func (c *storage) Mark(base int) {
	if c.states != nil {
		c.states.Mark(base)
	}
}

// Close gives pages and states up.
func (c *storage) Close() {
	c.Table.Close()
	if c.states != nil {
		c.states.Close()
	}
}
