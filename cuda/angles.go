package cuda

import (
	"encoding/binary"
	"fmt"
	"math"

	"windrow/backend"
	"windrow/cuda/driver"
)

// angles are cosines and sines by position, on the device. They lie in blocks of
// blockPositions, each made when one of its positions is first met: a long context's
// table is large (134 MB of 262,144 positions of 64 pairs). Kernels find a block by a
// list of addresses that never moves, so graphs stay good when the table grows.
type angles struct {
	b         *Backend
	from      backend.Angles
	positions int
	list      driver.Ptr   // [blocks] u64 on the device
	blocks    []driver.Ptr // 0: not made yet
}

// blockPositions is how many positions a block has, as rotate.cu knows: of 64 pairs
// 128 KiB, which take the host 0.25 ms.
const blockPositions = 256

func (a *angles) Pairs() int     { return a.from.Pairs() }
func (a *angles) Positions() int { return a.positions }

// Rotation takes a table, of which nothing is made yet.
func (b *Backend) Rotation(a backend.Angles, positions int) (backend.Rotation, error) {
	if b.device == nil {
		return nil, errClosed
	}
	if positions <= 0 || a.Pairs() <= 0 {
		return nil, fmt.Errorf("cuda: a rotation of %d pairs at %d positions: want 1 or more", a.Pairs(), positions)
	}
	y := &angles{b: b, from: a, positions: positions, blocks: make([]driver.Ptr, ceil(positions, blockPositions))}
	b.device.ctx.Enter()
	defer b.device.ctx.Leave()
	var err error
	if y.list, err = b.device.ctx.Alloc(8 * len(y.blocks)); err != nil {
		return nil, fmt.Errorf("cuda: a table of angles: %w", err)
	}
	b.owned = append(b.owned, y.list)
	return y, nil
}

// has makes sure of the angles of a position. The device may be at work meanwhile.
func (a *angles) has(position int) error {
	if a.blocks[position/blockPositions] != 0 {
		return nil
	}
	return a.make(position / blockPositions)
}

// make makes a block.
func (a *angles) make(block int) error {
	pairs, first := a.from.Pairs(), block*blockPositions
	positions := make([]int32, min(blockPositions, a.positions-first))
	for i := range positions {
		positions[i] = int32(first + i)
	}
	cos, sin := make([]float32, len(positions)*pairs), make([]float32, len(positions)*pairs)
	a.from.Fill(cos, sin, positions)
	data := make([]byte, 0, 8*len(cos))
	for r := range positions {
		for _, row := range [][]float32{cos, sin} {
			for _, x := range row[r*pairs : (r+1)*pairs] {
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
			}
		}
	}
	ctx := a.b.device.ctx
	p, err := ctx.Alloc(len(data))
	if err != nil {
		return fmt.Errorf("cuda: angles of positions from %d on: %w", first, err)
	}
	// A block is in the list once it is whole.
	if err = ctx.Upload(p, data); err == nil {
		err = ctx.Upload(a.list+driver.Ptr(8*block), binary.LittleEndian.AppendUint64(nil, uint64(p)))
	}
	if err != nil {
		ctx.Free(p)
		return err
	}
	a.b.owned = append(a.b.owned, p)
	a.blocks[block] = p
	return nil
}
