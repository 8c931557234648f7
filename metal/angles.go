package metal

import (
	"encoding/binary"
	"fmt"
	"math"

	"windrow/backend"
)

// rotationTable is cosines and sines in memory of the device: f32 [positions,
// 2 · pairs], of a position its cosines and then its sines. It holds the positions
// from 0 on that some forward has come near to.
type rotationTable struct {
	b                *Backend
	source           backend.Angles
	pairs, positions int
	data             view
	room, filled     int // positions
}

// anglesStep is how many positions are filled at once, and the least room that is
// taken for them: 512 KiB of 64 pairs.
const (
	anglesStep = 64
	anglesRoom = 1024
)

func (t *rotationTable) Pairs() int     { return t.pairs }
func (t *rotationTable) Positions() int { return t.positions }

// Rotation takes angles; it reserves nothing yet.
func (b *Backend) Rotation(a backend.Angles, positions int) (backend.Rotation, error) {
	if b.memory == nil {
		return nil, errClosed
	}
	if a.Pairs() <= 0 || positions <= 0 {
		return nil, fmt.Errorf("metal: a rotation of %d pairs for %d positions, want positive numbers", a.Pairs(), positions)
	}
	t := &rotationTable{b: b, source: a, pairs: a.Pairs(), positions: positions}
	b.tables = append(b.tables, t)
	return t, nil
}

// bytes is what so many positions take.
func (t *rotationTable) bytes(positions int) int { return 8 * t.pairs * positions }

// fill makes the angles of these positions available. Nothing that was submitted
// may still run.
func (t *rotationTable) fill(positions []int32) error {
	last := 0
	for _, p := range positions {
		last = max(last, int(p))
	}
	if last < t.filled {
		return nil
	}
	to := min(aligned(last+1, anglesStep), t.positions)
	if err := t.grow(to); err != nil {
		return err
	}
	data := t.b.memory.bytes(t.data, t.bytes(t.room))
	if data == nil { // only costs are counted
		t.filled = to
		return nil
	}
	var at [anglesStep]int32
	cos, sin := make([]float32, anglesStep*t.pairs), make([]float32, anglesStep*t.pairs)
	for t.filled < to {
		n := min(anglesStep, to-t.filled)
		for i := range n {
			at[i] = int32(t.filled + i)
		}
		t.source.Fill(cos, sin, at[:n])
		line := data[t.bytes(t.filled):]
		for i := range n {
			for j := range t.pairs {
				binary.LittleEndian.PutUint32(line[t.bytes(i)+4*j:], math.Float32bits(cos[i*t.pairs+j]))
				binary.LittleEndian.PutUint32(line[t.bytes(i)+4*(t.pairs+j):], math.Float32bits(sin[i*t.pairs+j]))
			}
		}
		t.filled += n
	}
	return nil
}

// grow makes room for that many positions: twice what there was, and all of them at
// most.
func (t *rotationTable) grow(to int) error {
	if to <= t.room {
		return nil
	}
	room := min(max(to, 2*t.room, anglesRoom), t.positions)
	data, err := t.b.memory.alloc(t.bytes(room), elemF32)
	if err != nil {
		return fmt.Errorf("%w, for the rotations of %d positions", err, room)
	}
	if t.room > 0 {
		copy(t.b.memory.bytes(data, t.bytes(t.filled)), t.b.memory.bytes(t.data, t.bytes(t.filled)))
	}
	t.free()
	t.data, t.room = data, room
	return nil
}

func (t *rotationTable) free() {
	if t.room > 0 {
		t.b.memory.free(t.data)
		t.room = 0
	}
}
