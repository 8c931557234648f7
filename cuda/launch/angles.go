package launch

import (
	"encoding/binary"
	"fmt"
	"math"

	"windrow/backend"
	"windrow/cuda/driver"
)

// Angles has cosines and sines by position, on the device. They lie in blocks of
// BlockPositions, each made when one of its positions is first met: a long context's
// table is large (134 MB of 262,144 positions of 64 pairs). Kernels find a block by a
// list of addresses that never moves, so graphs stay good when the table grows.
type Angles struct {
	ctx       *driver.Context
	own       func(driver.Ptr) // takes memory that the table keeps: it is for the owner to free
	from      backend.Angles
	positions int
	List      driver.Ptr   // [blocks] u64 on the device
	blocks    []driver.Ptr // 0: not made yet
}

// BlockPositions is how many positions a block has, as rotate.cu knows: of 64 pairs
// 128 KiB, which take the host 0.25 ms.
const BlockPositions = 256

// Pairs is how many pairs of a head are rotated, Positions how many positions the
// table may have.
func (a *Angles) Pairs() int     { return a.from.Pairs() }
func (a *Angles) Positions() int { return a.positions }

// NewAngles makes a table of that many positions, of which no block is made yet. own is
// given what it allocates.
func (d *Device) NewAngles(from backend.Angles, positions int, own func(driver.Ptr)) (*Angles, error) {
	y := &Angles{ctx: d.Context, own: own, from: from, positions: positions, blocks: make([]driver.Ptr, Ceil(positions, BlockPositions))}
	var err error
	if y.List, err = d.Context.Alloc(8 * len(y.blocks)); err != nil {
		return nil, fmt.Errorf("cuda: a table of angles: %w", err)
	}
	own(y.List)
	return y, nil
}

// Made reports whether the angles of a position are on the device.
func (a *Angles) Made(position int) bool { return a.blocks[position/BlockPositions] != 0 }

// Has makes sure of the angles of a position. The device may be at work meanwhile.
func (a *Angles) Has(position int) error {
	if a.Made(position) {
		return nil
	}
	return a.make(position / BlockPositions)
}

// make makes a block.
func (a *Angles) make(block int) error {
	pairs, first := a.from.Pairs(), block*BlockPositions
	positions := make([]int32, min(BlockPositions, a.positions-first))
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
	ctx := a.ctx
	p, err := ctx.Alloc(len(data))
	if err != nil {
		return fmt.Errorf("cuda: angles of positions from %d on: %w", first, err)
	}
	// A block is in the list once it is whole.
	if err = ctx.Upload(p, data); err == nil {
		err = ctx.Upload(a.List+driver.Ptr(8*block), binary.LittleEndian.AppendUint64(nil, uint64(p)))
	}
	if err != nil {
		ctx.Free(p)
		return err
	}
	a.own(p)
	a.blocks[block] = p
	return nil
}
