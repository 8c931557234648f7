package launch

import (
	"windrow/backend"
	"windrow/cuda/driver"
)

// Kernels of rows.cu.
var (
	kernelEmbed   = kernel{file: "rows", name: "embed"}
	kernelRMSNorm = kernel{file: "rows", name: "rms_norm"}
	// By the quads of a thread, of all rows.
	kernelsOfNorms = [4]kernel{{file: "rows", name: "rms_norm_1"}, {file: "rows", name: "rms_norm_2"}, {file: "rows", name: "rms_norm_3"}, {file: "rows", name: "rms_norm_4"}}
	kernelToBF16   = kernel{file: "rows", name: "to_bf16"}
	kernelToF32    = kernel{file: "rows", name: "to_f32"}
	kernelColumns  = kernel{file: "rows", name: "put_columns"}
	kernelGatedAct = kernel{file: "rows", name: "gated_act"}
)

// Threads of a block, as rows.cu has them.
const (
	rowThreads  = 256
	normThreads = 512
)

// floatKind is how kernels number the float types.
func floatKind(dt backend.DType) uint64 {
	switch dt {
	case backend.F16:
		return 1
	case backend.BF16:
		return 2
	}
	return 0
}

// Embed sets the step's rows of dst [bucket, width] to its tokens' rows of a
// table of floats, [vocabulary, width] as stored.
func (d *Device) Embed(dst, table driver.Ptr, dt backend.DType, width int, step driver.Ptr, bucket int) {
	d.launch(kernelEmbed, dim{x: bucket}, rowThreads, uint64(dst), uint64(table), floatKind(dt), uint64(width), uint64(step))
}

// RMSNorm norms rows of x [rows, width] into f32, bf16 or both (0: not wanted).
func (d *Device) RMSNorm(dst32, dst16, x, weight driver.Ptr, width, rows int, eps float32) {
	held := Ceil(width, 4*normThreads) // quads of a thread
	if width%4 != 0 || held > len(kernelsOfNorms) {
		d.RMSNormWanted(dst32, dst16, x, weight, width, rows, eps, 0)
		return
	}
	d.launch(kernelsOfNorms[held-1], dim{x: rows}, normThreads,
		uint64(dst32), uint64(dst16), uint64(x), uint64(weight), uint64(width), f32(eps))
}

// RMSNormWanted norms those rows of x that the step wants results of, and
// packs them: at most rows. Without a step it norms all rows.
func (d *Device) RMSNormWanted(dst32, dst16, x, weight driver.Ptr, width, rows int, eps float32, step driver.Ptr) {
	d.launch(kernelRMSNorm, dim{x: rows}, normThreads,
		uint64(dst32), uint64(dst16), uint64(x), uint64(weight), uint64(width), f32(eps), uint64(step))
}

// elementsALaunch keeps 32-bit indices in range.
const elementsALaunch = 1 << 30

// elementwise launches a kernel over n elements, perThread of them a thread.
// args gets the index of a launch's first element and their number.
func (d *Device) elementwise(k kernel, n, perThread int, args func(first, n int) []uint64) {
	for first := 0; first < n; first += elementsALaunch {
		m := min(n-first, elementsALaunch)
		blocks := (m + perThread*rowThreads - 1) / (perThread * rowThreads)
		d.launch(k, dim{x: blocks}, rowThreads, args(first, m)...)
	}
}

// past is an address that many elements on; 0 stays 0.
func past(p driver.Ptr, elements, size int) driver.Ptr {
	if p == 0 {
		return 0
	}
	return p + driver.Ptr(elements*size)
}

// ToBF16 rounds n elements, to nearest even.
func (d *Device) ToBF16(dst16, src32 driver.Ptr, n int) {
	d.elementwise(kernelToBF16, n, 8, func(first, n int) []uint64 {
		return []uint64{uint64(past(dst16, first, 2)), uint64(past(src32, first, 4)), uint64(n)}
	})
}

// ToF32 widens n elements.
func (d *Device) ToF32(dst32, src16 driver.Ptr, n int) {
	d.elementwise(kernelToF32, n, 8, func(first, n int) []uint64 {
		return []uint64{uint64(past(dst32, first, 4)), uint64(past(src16, first, 2)), uint64(n)}
	})
}

// PutColumns sets columns [at, at+width) of rows of dst [rows, stride] to rows of src
// [rows, width], in f32, bf16 or both (0: not wanted).
func (d *Device) PutColumns(dst32, dst16, src driver.Ptr, width, at, stride, rows int) {
	d.launch(kernelColumns, dim{x: rows}, rowThreads, uint64(dst32), uint64(dst16), uint64(src), uint64(width), uint64(at), uint64(stride))
}

// GatedAct sets dst = silu(gate) · up over n elements, in f32, bf16 or both (0:
// not wanted). gate and up are bf16 where half is set, else f32; dst32 or dst16
// may be one of them.
func (d *Device) GatedAct(dst32, dst16, gate, up driver.Ptr, half bool, n int) {
	size := 4
	if half {
		size = 2
	}
	d.elementwise(kernelGatedAct, n, 4, func(first, n int) []uint64 {
		return []uint64{uint64(past(dst32, first, 4)), uint64(past(dst16, first, 2)), uint64(past(gate, first, size)), uint64(past(up, first, size)), flag(half), uint64(n)}
	})
}
