package launch

import (
	"windrow/backend"
	"windrow/cuda/driver"
)

// Weight is a weight [out, in] on the device: as stored, or packed for the
// tensor cores, never both.
type Weight struct {
	DType           backend.DType
	Out, In, Group  int
	Raw             driver.Ptr // rows as the checkpoint has them; 0 where packed
	Scales, Biases  driver.Ptr // of affine types
	Packed          *packedMatrix
	TensorCoreShape bool // bf16 rows that the tensor-core kernels take
	Partial         bool // has part of the inputs: other GPUs' sums are to be added
}

// Fast reports whether projections by m run on tensor cores.
func (m *Weight) Fast() bool { return m.Packed != nil || m.TensorCoreShape }

// View is n outputs of a weight, from first on, in its memory; false where they
// do not lie apart from others.
func (m *Weight) View(first, n int) (Weight, bool) {
	y := *m
	y.Out = n
	if m.TensorCoreShape && n%8 != 0 {
		return Weight{}, false
	}
	if p := m.Packed; p != nil {
		if first%16 != 0 || n%8 != 0 {
			return Weight{}, false
		}
		cut := *p
		cut.out = n
		cut.Data += driver.Ptr(first / 16 * Ceil(p.in, p.inputs) * p.granule)
		cut.Bytes = cut.granules() * cut.granule
		y.Packed = &cut
		return y, true
	}
	y.Raw += driver.Ptr(first * m.DType.RowBytes(m.In))
	if m.DType.Affine() {
		at := driver.Ptr(first * m.In / m.Group * 2)
		y.Scales, y.Biases = m.Scales+at, m.Biases+at
	}
	return y, true
}

// Data is where the weight lies: packed, or as stored.
func (m *Weight) Data() driver.Ptr { return m.operand() }
