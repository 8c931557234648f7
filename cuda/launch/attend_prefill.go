package launch

import (
	"fmt"

	"windrow/backend"
	"windrow/cuda/driver"
)

// flashRows is the rows of a block of prefill attention.
const flashRows = 128

// flashPlainRows is how many attend_prefill.cu takes.
func flashPlainRows(dim int) int {
	if dim > 128 {
		return flashRows / 2
	}
	return flashRows
}

// flashVariant is one of the prefill kernels.
type flashVariant struct {
	kernel
	threads int
	rows    int  // of a block
	grouped bool // a block takes rows of all query heads of a KV head
}

// flashPlain is the kernel of a shape for every device, with its dynamic shared
// memory (struct Flash of attend_prefill.cu).
func flashPlain(a Attention) flashVariant {
	n, line := a.Dim, 2*a.Dim+16
	shared := (flashPlainRows(n) + 2*ChunkSlots) * line
	if a.KV == backend.KVInt8 {
		groups := (n + backend.KVGroup - 1) / backend.KVGroup
		shared += 2 * ChunkSlots * (n + 16 + 4*groups)
	}
	return flashVariant{kernel{"attend_prefill", fmt.Sprintf("flash_%v_%d", a.KV, n), shared}, attendThreads, flashPlainRows(n), false}
}

// flashHopper is the kernel of flash_hopper.cuh of a length of heads, with its dynamic shared
// memory: queries, stages of 64 KiB of keys and values, barriers, and room to begin on 1024 bytes.
func flashHopper(dim int) flashVariant {
	k, stages := kernel{file: "attend_hopper", name: "flash_hopper"}, 3
	if dim > 128 {
		k, stages = kernel{file: "attend_256_hopper", name: "flash_hopper_256"}, 2
	}
	k.shared = flashRows*2*dim + stages<<16 + 8*(3+4*stages) + 1024
	return flashVariant{k, 384, flashRows, false}
}

// flashGrouped is flashHopper of heads of 128, for spans of few rows.
func flashGrouped() flashVariant {
	v := flashHopper(128)
	v.name += "_grouped"
	v.grouped = true
	return v
}

// flashState remembers what the device takes of attention by wgmma: of prefill passes, of heads of
// 128 and of 256, and of decode passes.
type flashState struct{ prefill, long, decode hopperState }

// of is what it remembers of prefill passes, by the length of heads.
func (s *flashState) of(dim int) *hopperState {
	if dim > 128 {
		return &s.long
	}
	return &s.prefill
}

// hopperState is whether the device takes a kernel for compute capability 9.0.
type hopperState struct {
	tried, takes bool
	refused      error // why a device of that does not
}

// look finds it out.
func (s *hopperState) look(d *Device, k kernel) bool {
	if !s.tried {
		s.tried = true
		if d.openHopper() != nil {
			_, s.refused = d.function(k)
			s.takes = s.refused == nil
		}
	}
	return s.takes
}

// forHopper reports whether a shape is for attention by wgmma.
func (a Attention) forHopper() bool { return a.KV == backend.KVBF16 && a.Dim == 128 && !a.Gated }

// hopperAttends reports whether flash_hopper.cuh takes a shape on this device.
func (d *Device) hopperAttends(a Attention) bool {
	return a.KV == backend.KVBF16 && (a.Dim == 128 || a.Dim == 256) && d.flash.of(a.Dim).look(d, flashHopper(a.Dim).kernel)
}

// Flashes reports whether a pass whose bits may depend on the rows takes
// flashGrouped: where its blocks, one a KV head and span of up to 32 rows, are
// enough for the device.
func (d *Device) Flashes(a Attention, spans int) bool {
	return a.forHopper() && d.hopperAttends(a) && 5*a.KVHeads*spans >= d.Info.SMs
}

// AttendPrefill is AttendDecode for spans of any number of rows, at most
// mostRows, in large tiles: a row's bits depend on its place in them. It needs no
// room.
func (d *Device) AttendPrefill(out32, out16, q16, gates driver.Ptr, a Attention, step driver.Ptr, layer, bucket, spans, mostRows int) {
	which := flashPlain(a)
	if d.hopperAttends(a) {
		which = flashHopper(a.Dim)
	}
	d.attendFlash(which, out32, out16, q16, gates, a, step, layer, bucket, spans, mostRows)
}

// AttendGrouped is AttendPrefill for passes that flashes takes.
func (d *Device) AttendGrouped(out32, out16, q16 driver.Ptr, a Attention, step driver.Ptr, layer, bucket, spans, mostRows int) {
	d.attendFlash(flashGrouped(), out32, out16, q16, 0, a, step, layer, bucket, spans, mostRows)
}

// attendFlash is AttendPrefill by one of its kernels.
func (d *Device) attendFlash(which flashVariant, out32, out16, q16, gates driver.Ptr, a Attention, step driver.Ptr, layer, bucket, spans, mostRows int) {
	heads, vectors := a.QHeads, min(mostRows, bucket)
	if which.grouped {
		heads, vectors = a.KVHeads, vectors*a.group()
	}
	args := []uint64{uint64(out32), uint64(out16), uint64(q16), uint64(gates), uint64(step), uint64(layer), uint64(a.QHeads), uint64(a.KVHeads), f32(float32(float64(a.Scale) * log2e))}
	d.launch(which.kernel, dim{heads, Ceil(vectors, which.rows), spans}, which.threads, args...)
}
