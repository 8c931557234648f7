package cuda

import (
	"fmt"
	"math"

	"windrow/backend"
	"windrow/backend/paging"
	"windrow/cuda/driver"
)

// groupStates are a sequence's states over the GPUs of a group: an address on each.
type groupStates = paging.States[[]driver.Ptr]

// newStates makes the states of an empty sequence, which take so many bytes on a GPU.
// The budget counts those of all GPUs by heads, or whole ones once.
func (g *Group) newStates(l backend.Layout, bytes int) *groupStates {
	var pools groupPool
	for _, b := range g.shards {
		pools = append(pools, statePool{b, bytes})
	}
	return paging.NewStates(l, pools, g.marks, &g.budget)
}

// groupPool is where states of one size come from, on all GPUs or on none.
type groupPool []statePool

// Take takes states on each GPU.
func (p groupPool) Take() ([]driver.Ptr, error) {
	at := make([]driver.Ptr, len(p))
	for i := range p {
		var err error
		if at[i], err = p[i].Take(); err != nil {
			for k := range i {
				p[k].Give(at[k])
			}
			return nil, onGPU(i, err)
		}
	}
	return at, nil
}

// Give takes states back on each.
func (p groupPool) Give(at []driver.Ptr) {
	for i := range p {
		p[i].Give(at[i])
	}
}

var _ backend.StateStorage = (*groupStorage)(nil)

// Places lists where states can be had behind at most base indices.
func (c *groupStorage) Places(base int) []backend.Place { return c.withStates().Places(base) }

// ExportStates copies the states of a place, their heads from all GPUs.
func (c *groupStorage) ExportStates(p backend.Place, dst []byte) error {
	if err := c.layout.CheckStates(p, dst); err != nil {
		return fmt.Errorf("cuda: export: %w", err)
	}
	if c.states == nil { // nothing was written
		return backend.ErrNoPlace
	}
	return c.states.Export(p, func(at *[]driver.Ptr) error { return c.carryStates(*at, p, dst, false) })
}

// ImportStates copies states, their heads to all GPUs, or all of them to each; after an
// error of one GPU none has some.
func (c *groupStorage) ImportStates(p backend.Place, src []byte) error {
	if err := c.layout.CheckStates(p, src); err != nil {
		return fmt.Errorf("cuda: import: %w", err)
	}
	if err := c.begun(); err != nil {
		return err
	}
	return c.states.Import(p, func(at *[]driver.Ptr) error { return c.carryStates(*at, p, src, true) })
}

// carryStates copies the states at each GPU's address to their exported form or back.
// GPUs do so at once: each has a place of its own in what is exported.
func (c *groupStorage) carryStates(at []driver.Ptr, p backend.Place, exported []byte, in bool) error {
	if c.g.shards == nil {
		return errClosed
	}
	if !c.split && !in {
		return onGPU(0, c.parts[0].carryStates(at[0], p, exported, 1, false))
	}
	gpus := 1
	if c.split {
		gpus = len(c.parts)
	}
	return c.g.each(func(i int, _ *Backend) error { return c.parts[i].carryStates(at[i], p, exported, gpus, in) })
}

// imported is what was imported before it was known whether heads are cut, on the host.
type imported struct {
	pages  [][]byte
	place  backend.Place
	states []byte // nil: none
}

// takeOut copies what was imported.
func (c *groupStorage) takeOut() (y imported, err error) {
	for i := range c.imported {
		page := make([]byte, c.layout.Keys().ExportedPage())
		if err := c.Export(i, page); err != nil {
			return y, err
		}
		y.pages = append(y.pages, page)
	}
	// Before a forward there are states of one place, which may be marked.
	if list := c.Places(math.MaxInt); len(list) > 0 {
		y.place = list[len(list)-1]
		y.states = make([]byte, c.layout.ExportedStates(y.place))
		err = c.ExportStates(y.place, y.states)
	}
	return y, err
}

// putIn imports it again. After an error forwards behind it are refused.
func (c *groupStorage) putIn(y imported) error {
	for i, page := range y.pages {
		if err := c.Import(i, page); err != nil {
			return err
		}
	}
	if y.states == nil {
		return nil
	}
	return c.ImportStates(y.place, y.states)
}
