package metal

import (
	"fmt"

	"windrow/backend"
)

var _ backend.StateStorage = (*storage)(nil)

// ExportStates copies the states of a place. Their memory is the host's too, and nothing
// runs on them between two forwards.
func (c *storage) ExportStates(p backend.Place, dst []byte) error {
	if err := c.layout.CheckStates(p, dst); err != nil {
		return fmt.Errorf("metal: export: %w", err)
	}
	return c.States.Export(p, func(s **states) error { c.carryStates(*s, p, dst, false); return nil })
}

// ImportStates writes states.
func (c *storage) ImportStates(p backend.Place, src []byte) error {
	if err := c.layout.CheckStates(p, src); err != nil {
		return fmt.Errorf("metal: import: %w", err)
	}
	return c.States.Import(p, func(s **states) error { c.carryStates(*s, p, src, true); return nil })
}

// carryStates copies states to or from their exported form, which has the parts of a
// layer in the order of its elements here. What a place does not cover stays as it is.
func (c *storage) carryStates(s *states, p backend.Place, exported []byte, in bool) {
	// move copies n elements from the first on that v has, and finds the next of the
	// exported form behind them.
	move := func(v view, first, n int) {
		own := c.b.memory.bytes(v.at(4*first), 4*n) // nil where only costs are counted
		if in {
			copy(own, exported)
		} else {
			copy(exported, own)
		}
		exported = exported[4*n:]
	}
	log := c.layout.LogRows
	for number, shape := range c.layout.States() {
		y := s.layer(number)
		move(y.state, 0, shape.Size())
		for index := p.From; index < p.End; index++ {
			at := index % log
			move(y.keys, at*shape.Keys(), shape.Keys())
			move(y.deltas, at*shape.Values(), shape.Values())
			move(y.decays, at*shape.ValueHeads, shape.ValueHeads)
		}
		for index := shape.RawFrom(p.From); index < p.End; index++ {
			move(y.raw, index%shape.RawRows(log)*shape.Channels(), shape.Channels())
		}
	}
}
