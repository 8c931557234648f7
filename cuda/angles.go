package cuda

import (
	"fmt"

	"windrow/backend"
	"windrow/cuda/driver"
	"windrow/cuda/launch"
)

// angles are a table of a backend, which owns its memory.
type angles struct {
	*launch.Angles
	b *Backend
}

// Rotation takes a table, of which nothing is made yet.
func (b *Backend) Rotation(a backend.Angles, positions int) (backend.Rotation, error) {
	if b.device == nil {
		return nil, errClosed
	}
	if positions <= 0 || a.Pairs() <= 0 {
		return nil, fmt.Errorf("cuda: a rotation of %d pairs at %d positions: want 1 or more", a.Pairs(), positions)
	}
	b.device.Context.Enter()
	defer b.device.Context.Leave()
	t, err := b.device.NewAngles(a, positions, func(p driver.Ptr) { b.owned = append(b.owned, p) })
	if err != nil {
		return nil, err
	}
	return &angles{b: b, Angles: t}, nil
}
