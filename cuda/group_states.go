package cuda

import (
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
