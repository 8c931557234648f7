package cpu

import (
	"errors"
	"fmt"
	"unsafe"

	"windrow/backend"
)

// Places lists where states can be had.
func (c *storage) Places(base int) []backend.Place {
	if c.States == nil {
		return nil
	}
	return c.States.Places(base)
}

// ExportStates copies the states of a place, their columns brought in order.
func (c *storage) ExportStates(p backend.Place, dst []byte) error {
	if err := c.checkStates(p, dst); err != nil {
		return fmt.Errorf("cpu: export: %w", err)
	}
	return c.States.Export(p, func(v **states) { c.carryStates(*v, p, dst, false) })
}

// ImportStates writes states.
func (c *storage) ImportStates(p backend.Place, src []byte) error {
	if err := c.checkStates(p, src); err != nil {
		return fmt.Errorf("cpu: import: %w", err)
	}
	return c.States.Import(p, func(v **states) { c.carryStates(*v, p, src, true) })
}

// checkStates refuses what is not a place's states.
func (c *storage) checkStates(p backend.Place, data []byte) error {
	if c.States == nil {
		return errors.New("no layer has a state")
	}
	if err := p.Check(c.layout); err != nil {
		return err
	}
	if want := c.layout.ExportedStates(p); int64(len(data)) != want {
		return fmt.Errorf("states of %d bytes, want %d", len(data), want)
	}
	return nil
}

// carryStates copies states to or from their exported form.
func (c *storage) carryStates(v *states, p backend.Place, exported []byte, in bool) {
	move := func(own []float32) {
		bytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(own))), 4*len(own))
		if in {
			copy(bytes, exported)
		} else {
			copy(exported, bytes)
		}
		exported = exported[len(bytes):]
	}
	log := c.layout.LogRows
	for i, s := range c.layout.States() {
		y := &v.layers[i]
		for head := range s.ValueHeads {
			for row := range s.KeyDim {
				for block := 0; block*stateColumns < s.ValueDim; block++ {
					from, _, columns := stateBlock(&s, head, block)
					move(y.s[from+row*columns:][:columns])
				}
			}
		}
		for index := p.From; index < p.End; index++ {
			at := index % log
			move(y.keys[at*s.Keys():][:s.Keys()])
			move(y.deltas[at*s.Values():][:s.Values()])
			move(y.decays[at*s.ValueHeads:][:s.ValueHeads])
		}
		for index := s.RawFrom(p.From); index < p.End; index++ {
			move(y.raw[index%s.RawRows(log)*s.Channels():][:s.Channels()])
		}
	}
}
