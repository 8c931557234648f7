package launch

import (
	"fmt"
	"unsafe"

	"windrow/cuda/driver"
)

// The tiles of gemm_hopper.cu. pair: two tiles of rows share one of weights.
// wide: one block alone, for an odd tile of rows. narrow: two tiles of outputs
// share one of x. split: two blocks take halves of k, and exchange sums. The
// costs of pair are measured; those of narrow and split are what tiles of 128
// outputs took without partners, less what L2 then cost them.
var (
	hopperPair   = hopperTile("wide_pair", 4, gemmTile{name: "pair", cols: 256, tall: 2, broad: 1, split: 1, step: 0.66, edge: 3})
	hopperWide   = hopperTile("alone", 4, gemmTile{name: "wide", cols: 256, tall: 1, broad: 1, split: 1, step: 0.70, edge: 3})
	hopperNarrow = hopperTile("narrow_pair", 6, gemmTile{name: "narrow", cols: 128, tall: 1, broad: 2, split: 1, step: 0.36, edge: 2})
	hopperSplit  = hopperTile("split_pair", 6, gemmTile{name: "split", cols: 128, tall: 1, broad: 1, split: 2, step: 0.36, edge: 5})

	hopperTiles      = []gemmTile{hopperPair, hopperWide, hopperNarrow, hopperSplit}
	hopperGatedTiles = []gemmTile{hopperPair, hopperWide, hopperNarrow}
)

// splitInputs is from where on halves of k are worth their exchange. Less than
// two steps of k cannot be halved.
const splitInputs = 1024

// hopperTile adds a tile's kernels, gemm_… and gated_… of a name. Their ring has
// 64 k of 128 rows and cols outputs a stage, and two barriers each; split tiles
// have room for half of their sums, and two barriers more. It begins on 1024 bytes.
func hopperTile(name string, stages int, t gemmTile) gemmTile {
	t.rows, t.hopper = 128, true
	shared := stages*((t.rows+t.cols)*128+16) + 1024
	if t.split > 1 {
		shared += t.cols*64*4 + 16
	} else {
		t.gated = kernel{"gemm_hopper", "gated_" + name, shared}
	}
	t.plain = kernel{"gemm_hopper", "gemm_" + name, shared}
	return t
}

const (
	hopperThreads = 384
	mapRows       = 128 // of the largest box of a tensor map
)

// xBox is how many rows of x a copy brings: blocks that share a tile of x load
// half of it each.
func (t gemmTile) xBox() int { return t.rows / t.broad }

// gemmOperand is what a kernel takes for a bf16 matrix [rows, in]: its address,
// or that of its tensor map in boxes of box rows.
func (d *Device) gemmOperand(t gemmTile, data driver.Ptr, rows, in, box int) uint64 {
	if !t.hopper || d.err != nil {
		return uint64(data)
	}
	return uint64(d.mapOf(mapKey{data, rows, in, box}))
}

// mapOf is the address of a matrix's tensor map.
func (d *Device) mapOf(key mapKey) (p driver.Ptr) {
	if d.err == nil {
		p, d.err = d.prefill.hopper.tensorMap(d.Context, key)
	}
	return p
}

// hopperGEMM is what gemm_hopper.cu needs of the driver, and the tensor maps of
// the operands that it has met: a model's weights, and the activations of each
// row bucket, whose addresses return in every pass.
type hopperGEMM struct {
	encode uintptr // cuTensorMapEncodeTiled
	maps   map[mapKey]driver.Ptr
	slabs  []driver.Ptr
	used   int // maps in the last slab
}

// mapKey is a bf16 matrix on the device, and the rows of its boxes.
type mapKey struct {
	data          driver.Ptr
	rows, in, box int
}

const (
	mapBytes = 128
	slabMaps = 1024 // of an allocation
)

// openHopper finds what gemm_hopper.cu needs: nil on other devices, and with
// drivers that make no tensor maps. Those that do know its PTX version: both
// came with CUDA 12.0.
func (d *Device) openHopper() *hopperGEMM {
	if d.common || d.Info.Major != 9 || d.Info.Minor != 0 {
		return nil
	}
	encode, err := d.Context.Symbol("cuTensorMapEncodeTiled")
	if err != nil {
		return nil
	}
	return &hopperGEMM{encode: encode, maps: map[mapKey]driver.Ptr{}, used: slabMaps}
}

// tensorMap is the device address of a matrix's map, in boxes of 64 columns.
// Only the first meeting costs more than a look-up.
func (h *hopperGEMM) tensorMap(ctx *driver.Context, key mapKey) (driver.Ptr, error) {
	if p, ok := h.maps[key]; ok {
		return p, nil
	}
	if h.used == slabMaps {
		slab, err := ctx.Alloc(slabMaps * mapBytes)
		if err != nil {
			return 0, err
		}
		h.slabs, h.used = append(h.slabs, slab), 0
	}
	const bf16, swizzle128, promote256 = 9, 3, 3 // CUtensorMapDataType, …Swizzle, …L2promotion
	var room [mapBytes + 64]byte
	m := room[-uintptr(unsafe.Pointer(&room[0]))%64:][:mapBytes] // it wants 64-byte alignment
	size := [2]uint64{uint64(key.in), uint64(key.rows)}
	pitch := [1]uint64{uint64(key.in) * 2}
	box, step := [2]uint32{64, uint32(key.box)}, [2]uint32{1, 1}
	status := driver.Call(h.encode, uintptr(unsafe.Pointer(&m[0])), bf16, 2, uintptr(key.data),
		uintptr(unsafe.Pointer(&size[0])), uintptr(unsafe.Pointer(&pitch[0])), uintptr(unsafe.Pointer(&box[0])), uintptr(unsafe.Pointer(&step[0])),
		0, swizzle128, promote256, 0)
	if status != 0 {
		return 0, fmt.Errorf("cuda: cuTensorMapEncodeTiled of [%d, %d] in boxes of %d rows: status %d", key.rows, key.in, key.box, status)
	}
	p := h.slabs[len(h.slabs)-1] + driver.Ptr(h.used*mapBytes)
	if err := ctx.Upload(p, m); err != nil {
		return 0, err
	}
	h.used++
	h.maps[key] = p
	return p, nil
}

func (h *hopperGEMM) free(ctx *driver.Context) {
	for _, p := range h.slabs {
		ctx.Free(p)
	}
}
