package launch

import (
	"fmt"
	"math/bits"

	"windrow/backend"
	"windrow/cuda/driver"
)

// format is how the tensor-core kernels take a weight: the file of its
// kernels, and the sizes of kernels/packed.cuh and stream.cuh.
type format struct {
	file    string
	inputs  int  // of a granule
	granule int  // bytes of 16 outputs by inputs: numbers, then scales
	scales  int  // bytes of those
	shift   int  // log2(group / inputs of a fold)
	rounds  bool // kernels round weights to bf16 (packed.cuh)
	sums    bool // biases are added times sums of inputs, if not
	pairs   bool // kernels/wide.cuh has pairs of blocks of 256 rows
}

// bf16Format is that of bf16 rows as stored.
var bf16Format = format{file: "stream_bf16", inputs: 64, granule: 2048}

// formatOf is the format of a quantised dtype.
func formatOf(dt backend.DType, group int) (format, bool) {
	switch dt {
	case backend.Affine4, backend.Affine8:
		f := format{file: "stream_affine4", inputs: 128, rounds: true, sums: true, pairs: true}
		if dt == backend.Affine8 {
			f = format{file: "stream_affine8", inputs: 64, sums: true}
		}
		f.scales = 64 * max(1, f.inputs/group)
		f.granule = 1024 + f.scales
		fold := 64
		if group == 32 {
			fold = 32
			f.file += "_32"
		}
		f.shift = bits.Len(uint(group/fold)) - 1
		return f, true
	case backend.Q4_0:
		return format{file: "stream_q4_0", inputs: 128, granule: 1024 + 128, scales: 128, sums: true, pairs: true}, true
	case backend.Q8_0:
		return format{file: "stream_q8_0", inputs: 64, granule: 1024 + 64, scales: 64}, true
	case backend.Q4_K:
		return format{file: "stream_q4_k", inputs: 128, granule: 1024 + 128 + 64, scales: 128 + 64, sums: true}, true
	case backend.Q6_K:
		return format{file: "stream_q6_k", inputs: 64, granule: 768 + 64 + 32, scales: 64 + 32}, true
	}
	return format{}, false
}

// unit is the bytes of 64 inputs of 16 outputs in the ring of the kernels:
// numbers, and all scales of their granule.
func (f format) unit() int { return (f.granule-f.scales)*64/f.inputs + f.scales }

// packedMatrix is a quantised weight in the order in which the tensor-core
// kernels read it (kernels/packed.cuh).
type packedMatrix struct {
	format
	dt      backend.DType
	out, in int
	group   int
	Data    driver.Ptr
	Bytes   int
}

// Packing is a packed weight, whose memory may be packed later.
type Packing = *packedMatrix

// Packable reports whether the tensor-core kernels take a weight: bf16 rows and
// quantised ones whose inputs are a multiple of 8.
func Packable(t backend.Tensor) bool {
	if len(t.Shape) != 2 || t.Shape[1]%8 != 0 {
		return false
	}
	if t.DType == backend.BF16 {
		return true
	}
	_, ok := formatOf(t.DType, t.Group)
	return ok
}

// PackedShape is a packed weight [out, in] that has no memory yet; false where the
// type has no packed form.
func PackedShape(dt backend.DType, group, out, in int) (*packedMatrix, bool) {
	f, ok := formatOf(dt, group)
	if !ok {
		return nil, false
	}
	m := &packedMatrix{format: f, dt: dt, out: out, in: in, group: group}
	m.Bytes = m.granules() * f.granule
	return m, true
}

// Pack enqueues the packing of a quantised weight whose bytes are on the
// device; scales and biases are those of affine types. What was read may be
// freed, and the weight be used, once the stream has been waited for:
// projections read weights before the kernel before them has ended.
func (d *Device) Pack(t backend.Tensor, raw, scales, biases driver.Ptr) (*packedMatrix, error) {
	if !Packable(t) || !t.DType.Quantized() {
		return nil, fmt.Errorf("cuda: %v of shape %v cannot be packed", t.DType, t.Shape)
	}
	m, _ := PackedShape(t.DType, t.Group, t.Shape[0], t.Shape[1])
	var err error
	if m.Data, err = d.Context.Alloc(m.Bytes); err != nil {
		return nil, err
	}
	d.PackTo(m, raw, scales, biases)
	if err := d.Take(); err != nil {
		d.Context.Free(m.Data)
		return nil, err
	}
	return m, nil
}

// PackTo is Pack into memory that the weight has.
func (d *Device) PackTo(m Packing, raw, scales, biases driver.Ptr) {
	d.launch(kernel{file: "pack", name: "pack_" + m.dt.String()}, dim{x: Ceil(m.granules(), 8)}, 256,
		uint64(m.Data), uint64(raw), uint64(scales), uint64(biases), uint64(m.out), uint64(m.in), uint64(m.group), uint64(m.granule))
}

func (m *packedMatrix) granules() int { return Ceil(m.out, 16) * Ceil(m.in, m.inputs) }

// dequantise writes a packed weight as rows of bf16 [out, in], each weight
// rounded once.
func (d *Device) dequantise(dst driver.Ptr, w *Weight) {
	m := w.Packed
	shift := 0
	if m.dt.Affine() {
		shift = bits.Len(uint(m.group/32)) - 1
	}
	shared := 8 * 16 * (2*m.inputs + 16) // 8 granules of 16 rows, apart from their neighbours' banks
	d.launch(kernel{"pack", "dequantise_" + m.dt.String(), shared}, dim{x: Ceil(m.granules(), 8)}, 256,
		uint64(dst), uint64(m.Data), uint64(m.out), uint64(m.in), uint64(m.granule), uint64(shift))
}

// Ceil is n/by, rounded up.
func Ceil(n, by int) int { return (n + by - 1) / by }

// Failed reports whether a launch has failed, whose error Take returns.
func (d *Device) Failed() bool { return d.err != nil }
