package cuda

import (
	"bytes"
	"fmt"
	"unsafe"

	"windrow/cuda/driver"
)

// The tiles of gemm_hopper.cu. A wave of split tiles makes half a wide tile a
// block, and exchanges sums.
var (
	hopperPair   = hopperTile("pair", "wide_pair", 256, 4, 2, 1, 1.9)
	hopperAhead  = hopperTile("ahead", "ahead_pair", 256, 4, 2, 1, 1.9)
	hopperWide   = hopperTile("wide", "wide", 256, 4, 1, 1, 2.1)
	hopperNarrow = hopperTile("narrow", "narrow", 128, 6, 1, 1, 1.4)
	hopperSplit  = hopperTile("split", "split_pair", 256, 3, 1, 2, 1.2)

	hopperTiles      = []gemmTile{hopperPair, hopperWide, hopperNarrow, hopperSplit}
	hopperGatedTiles = []gemmTile{hopperPair, hopperWide}
)

// splitInputs is from where on halves of k are worth their exchange.
const splitInputs = 1024

// hopperTile is a tile of the kernels gemm_… and gated_… of a name. Its ring has
// 64 k of 128 rows and cols outputs a stage, and two barriers each; split tiles
// have room for half of their sums, and two barriers more. It begins on 1024 bytes.
func hopperTile(name, suffix string, cols, stages, sharing, blocks int, cost float64) gemmTile {
	shared := stages*((128+cols)*128+16) + 1024
	if blocks > 1 {
		shared += cols*64*4 + 16
	}
	t := gemmTile{name: name, rows: 128, cols: cols, sharing: sharing, blocks: blocks, cost: cost}
	t.plain = kernel{"gemm_hopper", "gemm_" + suffix, shared}
	if cols == 256 && blocks == 1 {
		t.gated = kernel{"gemm_hopper", "gated_" + suffix, shared}
	}
	return t
}

const hopperThreads = 384

// hopperGEMM is gemm_hopper.cu on a device, and the tensor maps of the
// operands that it has met.
type hopperGEMM struct {
	encode uintptr // cuTensorMapEncodeTiled
	maps   map[mapKey]driver.Ptr
	slabs  []driver.Ptr
	used   int // maps in the last slab
}

// mapKey is a bf16 matrix on the device.
type mapKey struct {
	data     driver.Ptr
	rows, in int
}

const (
	mapBytes = 128
	slabMaps = 1024
)

// openHopper finds what gemm_hopper.cu needs: nil on other devices, and with
// drivers that make no tensor maps.
func (d *device) openHopper() *hopperGEMM {
	if d.info.Major != 9 || d.info.Minor != 0 {
		return nil
	}
	library, err := driver.OpenLibrary("libcuda.so.1")
	if err != nil {
		return nil
	}
	h := &hopperGEMM{maps: map[mapKey]driver.Ptr{}, used: slabMaps}
	if h.encode, err = library.Symbol("cuTensorMapEncodeTiled"); err != nil {
		return nil
	}
	return h
}

// hopperTakes tells whether the driver translates a kernel of gemm_hopper.cu.
// Where it does not, the device goes on without that file.
func (d *device) hopperTakes(k kernel) bool {
	if _, err := d.function(k); err != nil {
		d.prefill.hopper.free(d.ctx)
		d.prefill.hopper, d.prefill.refused = nil, err
		return false
	}
	return true
}

// withClusters marks the entries whose names end in _pair as kernels of
// clusters of two blocks: clang has no attribute for the size of a cluster.
func withClusters(image []byte) []byte {
	const entry, bound = ".entry ", ".minnctapersm 1"
	var out []byte
	for {
		i := bytes.Index(image, []byte(entry))
		if i < 0 {
			return append(out, image...)
		}
		i += len(entry)
		name, _, _ := bytes.Cut(image[i:], []byte("("))
		out, image = append(out, image[:i]...), image[i:]
		if !bytes.HasSuffix(bytes.TrimSpace(name), []byte("_pair")) {
			continue
		}
		if i = bytes.Index(image, []byte(bound)); i >= 0 {
			i += len(bound)
			out = append(append(out, image[:i]...), "\n.explicitcluster\n.reqnctapercluster 2, 1, 1"...)
			image = image[i:]
		}
	}
}

// tensorMap is the device address of the map of a bf16 matrix [rows, in], in
// boxes of 128 rows by 64 columns.
func (h *hopperGEMM) tensorMap(ctx *driver.Context, data driver.Ptr, rows, in int) (driver.Ptr, error) {
	key := mapKey{data, rows, in}
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
	size := [2]uint64{uint64(in), uint64(rows)}
	pitch := [1]uint64{uint64(in) * 2}
	box, step := [2]uint32{64, 128}, [2]uint32{1, 1}
	status := driver.Call(h.encode, uintptr(unsafe.Pointer(&m[0])), bf16, 2, uintptr(data),
		uintptr(unsafe.Pointer(&size[0])), uintptr(unsafe.Pointer(&pitch[0])), uintptr(unsafe.Pointer(&box[0])), uintptr(unsafe.Pointer(&step[0])),
		0, swizzle128, promote256, 0)
	if status != 0 {
		return 0, fmt.Errorf("cuda: cuTensorMapEncodeTiled of [%d, %d]: status %d", rows, in, status)
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

// mapOf is tensorMap with the device's error.
func (d *device) mapOf(data driver.Ptr, rows, in int) driver.Ptr {
	if d.err != nil {
		return 0
	}
	p, err := d.prefill.hopper.tensorMap(d.ctx, data, rows, in)
	d.err = err
	return p
}

// hopperGrid is as many blocks as the device holds, or fewer where there are
// fewer tiles: a block makes several.
func (d *device) hopperGrid(t gemmTile, rows int, outs ...int) dim {
	return dim{x: min(t.grid(rows, outs...), t.atOnce(d.info.SMs))}
}

// hopperProject is gemm by gemm_hopper.cu.
func (d *device) hopperProject(t gemmTile, x driver.Ptr, parts []gemmPart, in, rows int) {
	var w [3]driver.Ptr
	var outs [3]int
	for i, p := range parts {
		w[i], outs[i] = d.mapOf(p.w, p.out, in), p.out
	}
	d.launch(t.plain, d.hopperGrid(t, rows, outs[:]...), hopperThreads, gemmArguments(d.mapOf(x, rows, in), w, parts, in, rows)...)
}

// hopperGated is gemmGated by gemm_hopper.cu.
func (d *device) hopperGated(t gemmTile, dst target, x driver.Ptr, gate, up gemmPart, in, rows int) {
	// A tile has cols/2 outputs: those of gate and of up.
	d.launch(t.gated, d.hopperGrid(t, rows, 2*gate.out), hopperThreads,
		uint64(d.mapOf(x, rows, in)), uint64(d.mapOf(gate.w, gate.out, in)), uint64(d.mapOf(up.w, up.out, in)),
		uint64(dst.f32), uint64(dst.bf16), uint64(gate.bias), uint64(up.bias), uint64(rows), uint64(gate.out), uint64(in))
}
