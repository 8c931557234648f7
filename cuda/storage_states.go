package cuda

import (
	"windrow/backend"
	"windrow/backend/paging"
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

// StateStep is what the forward at work does with the states.
func (c *storage) StateStep() launch.StateStep {
	if c.group != nil {
		return stateStep(c.group.Step(), func(at []driver.Ptr) driver.Ptr { return at[c.rank] })
	}
	return stateStep(c.States.Step(), func(at driver.Ptr) driver.Ptr { return at })
}

func stateStep[V any](s *paging.StateStep[V], on func(V) driver.Ptr) launch.StateStep {
	y := launch.StateStep{To: on(*s.To), Settle: s.Settle, Folded: s.Folded}
	if s.From != nil {
		y.From = on(*s.From)
	}
	return y
}

// done says that a layer's states are written; in a group, on all GPUs.
func (c *storage) done(layer int) {
	if c.group != nil {
		c.group.Done(layer)
		return
	}
	c.States.Done(layer)
}
