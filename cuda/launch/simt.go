package launch

import (
	"fmt"

	"windrow/backend"
	"windrow/cuda/driver"
)

// The shape of a block of simt.cu: 2 warps of 4 outputs, by 8 rows. simtTiles
// such blocks take the same weights at the same time: those of 32 rows.
const (
	simtOutputs = 8
	simtRows    = 8
	simtTiles   = 4
)

// simtKernel is the exact projection by a weight. Floats whose rows are no
// multiple of 8 are read one by one.
func simtKernel(dt backend.DType, in int) kernel {
	if !dt.Quantized() && in%8 != 0 {
		return kernel{file: "simt", name: "simt_project_odd"}
	}
	return kernel{file: "simt", name: "simt_project_" + dt.String()}
}

// SIMTProject sets dst [bucket, out] = x·wᵀ + bias (0: none), or adds it: x is
// [bucket, in], both f32, w as stored. A row's bits depend on that row alone.
func (d *Device) SIMTProject(dst, x driver.Ptr, w *Weight, bias driver.Ptr, add bool, bucket int) {
	d.simtProjectLive(dst, x, w, bias, add, bucket, 0)
}

// simtProjectLive is SIMTProject for the first rows of the bucket only: live is
// the device address of their number, a u32 (0: all of them). It spares one row
// most of the work of 8.
func (d *Device) simtProjectLive(dst, x driver.Ptr, w *Weight, bias driver.Ptr, add bool, bucket int, live driver.Ptr) {
	tiles := (bucket + simtRows - 1) / simtRows
	together := min(tiles, simtTiles)
	grid := dim{together, (w.Out + simtOutputs - 1) / simtOutputs, (tiles + together - 1) / together}
	d.launch(simtKernel(w.DType, w.In), grid, 64,
		uint64(dst), uint64(x), uint64(w.Raw), uint64(w.Scales), uint64(w.Biases), uint64(bias),
		uint64(w.Out), uint64(w.In), uint64(w.Group), floatKind(w.DType), flag(add), uint64(bucket), uint64(live))
}

// MaxHeadDim is what the exact attention kernel holds in registers.
const MaxHeadDim = 256

// The shape of a block of simt_attend.cu.
const (
	simtAttendThreads = 512
	simtAttendHeads   = 4
)

// SIMTAttend is attention of the step's rows over the keys and values of a
// layer, in f32: out and q are [bucket, query heads · dim], q with gates twice that. dim is even, at
// most MaxHeadDim. A row's bits depend on that row alone.
func (d *Device) SIMTAttend(out, q driver.Ptr, a Attention, step driver.Ptr, layer, bucket int) {
	group := a.QHeads / a.KVHeads
	name, kind := "simt_attend_"+a.KV.String(), uint64(a.KV-backend.KVF32)
	if a.Dim%4 != 0 {
		name = "simt_attend_odd"
	}
	if a.Dim%2 != 0 || a.Dim > MaxHeadDim {
		if d.err == nil {
			d.err = fmt.Errorf("cuda: attention heads of %d: want an even number up to %d", a.Dim, MaxHeadDim)
		}
		return
	}
	d.launch(kernel{file: "simt_attend", name: name}, dim{bucket, a.KVHeads, (group + simtAttendHeads - 1) / simtAttendHeads}, simtAttendThreads,
		uint64(out), uint64(q), uint64(headStride(a.Dim, a.Gated)), uint64(group), uint64(a.KVHeads), uint64(a.Dim), f32(a.Scale), kind, uint64(layer), uint64(step))
}
