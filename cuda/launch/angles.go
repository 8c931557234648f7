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
// list of addresses that never moves, so graphs stay good when the table grows. The first
// blocks lie behind each other, so that kernels that are in a hurry need not ask.
type Angles struct {
	ctx       *driver.Context
	own       func(driver.Ptr) // takes memory that the table keeps: it is for the owner to free
	from      backend.Angles
	positions int
	list      driver.Ptr   // [blocks] u64 on the device
	near      driver.Ptr   // the first blocks
	blocks    []driver.Ptr // 0: not made yet
}

// BlockPositions is how many positions a block has, as rotate.cu knows: of 64 pairs
// 128 KiB, which take the host 0.25 ms.
const BlockPositions = 256

// NearPositions is how many positions of a table have room from the beginning: of 64 pairs 4 MiB.
const NearPositions = 32 * BlockPositions

// Table is where kernels find angles.
type Table struct {
	List    driver.Ptr // addresses of blocks
	Near    driver.Ptr // the blocks of positions below Nearest
	Nearest int
}

// Table is where the angles lie.
func (a *Angles) Table() Table {
	return Table{List: a.list, Near: a.near, Nearest: min(a.positions, NearPositions)}
}

// Pairs is how many pairs of a head are rotated, Positions how many positions the
// table may have.
func (a *Angles) Pairs() int     { return a.from.Pairs() }
func (a *Angles) Positions() int { return a.positions }

// NewAngles makes a table of that many positions, of which no block is made yet. own is
// given what it allocates.
func (d *Device) NewAngles(from backend.Angles, positions int, own func(driver.Ptr)) (*Angles, error) {
	y := &Angles{ctx: d.Context, own: own, from: from, positions: positions, blocks: make([]driver.Ptr, Ceil(positions, BlockPositions))}
	var err error
	for _, room := range []struct {
		at    *driver.Ptr
		bytes int
	}{{&y.list, 8 * len(y.blocks)}, {&y.near, 8 * from.Pairs() * y.Table().Nearest}} {
		if *room.at, err = d.Context.Alloc(room.bytes); err != nil {
			return nil, fmt.Errorf("cuda: a table of angles: %w", err)
		}
		own(*room.at)
	}
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
	p := a.near + driver.Ptr(8*pairs*first)
	if first >= NearPositions {
		var err error
		if p, err = a.ctx.Alloc(len(data)); err != nil {
			return fmt.Errorf("cuda: angles of positions from %d on: %w", first, err)
		}
		a.own(p)
	}
	// A block is in the list once it is whole.
	err := a.ctx.Upload(p, data)
	if err == nil {
		err = a.ctx.Upload(a.list+driver.Ptr(8*block), binary.LittleEndian.AppendUint64(nil, uint64(p)))
	}
	if err == nil {
		a.blocks[block] = p
	}
	return err
}
