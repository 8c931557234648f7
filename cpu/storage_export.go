package cpu

import (
	"fmt"
	"unsafe"

	"windrow/backend"
)

// ExportStates copies the states of a place, their columns brought in order.
func (c *storage) ExportStates(p backend.Place, dst []byte) error {
	if err := c.layout.CheckStates(p, dst); err != nil {
		return fmt.Errorf("cpu: export: %w", err)
	}
	return c.States.Export(p, func(v **states) error { c.carryStates(*v, p, dst, false); return nil })
}

// ImportStates writes states.
func (c *storage) ImportStates(p backend.Place, src []byte) error {
	if err := c.layout.CheckStates(p, src); err != nil {
		return fmt.Errorf("cpu: import: %w", err)
	}
	return c.States.Import(p, func(v **states) error { c.carryStates(*v, p, src, true); return nil })
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
