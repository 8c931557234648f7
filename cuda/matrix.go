package cuda

import (
	"fmt"

	"windrow/backend"
	"windrow/cuda/driver"
	"windrow/quant"
)

// matrix is a weight [out, in] on the device: as stored, or packed for the
// tensor cores, never both.
type matrix struct {
	b               *Backend
	label           string
	dt              backend.DType
	out, in, group  int
	raw             driver.Ptr // rows as the checkpoint has them; 0 where packed
	scales, biases  driver.Ptr // of affine types
	packed          *packedMatrix
	tensor          backend.Tensor // on the host, as stored: quantised embeddings are decoded there
	tensorCoreShape bool           // bf16 rows that the tensor-core kernels take
	partial         bool           // has part of the inputs: other GPUs' sums are to be added
}

func (m *matrix) Out() int { return m.out }
func (m *matrix) In() int  { return m.in }

// fast tells whether projections by m run on tensor cores.
func (m *matrix) fast() bool { return m.packed != nil || m.tensorCoreShape }

// view is n outputs of a weight, from first on, in its memory; false where they
// do not lie apart from others.
func (m *matrix) view(first, n int) (*matrix, bool) {
	y := *m
	y.out = n
	if m.tensorCoreShape && n%8 != 0 {
		return nil, false
	}
	if p := m.packed; p != nil {
		if first%16 != 0 || n%8 != 0 {
			return nil, false
		}
		cut := *p
		cut.out = n
		cut.data += driver.Ptr(first / 16 * ceil(p.in, p.inputs) * p.granule)
		cut.bytes = cut.granules() * cut.granule
		y.packed = &cut
		return &y, true
	}
	y.raw += driver.Ptr(first * m.dt.RowBytes(m.in))
	if m.dt.Affine() {
		at := driver.Ptr(first * m.in / m.group * 2)
		y.scales, y.biases = m.scales+at, m.biases+at
	}
	return &y, true
}

// vector is a weight [n] in f32 on the device.
type vector struct {
	b    *Backend
	n    int
	data driver.Ptr
}

func (v *vector) Len() int { return v.n }

// Matrix uploads a weight, and packs quantised ones; those of types without
// kernels are converted (quant.ConvertedType).
func (b *Backend) Matrix(t backend.Tensor) (backend.Matrix, error) {
	if len(t.Shape) != 2 {
		return nil, fmt.Errorf("tensor %s: shape %v, want [out, in]", t.Name, t.Shape)
	}
	if err := t.Check(); err != nil {
		return nil, err
	}
	stored := t
	t = quant.Convert(t, b.exact)
	b.device.ctx.Enter()
	defer b.device.ctx.Leave()
	m := &matrix{b: b, partial: t.Split == backend.SplitInputs && b.device.rank != nil, label: t.Name, dt: t.DType, out: t.Shape[0], in: t.Shape[1], group: t.Group}
	if t.Split == backend.SplitNone { // projections are never decoded, and may be copies that were made for this
		m.tensor = stored
	}
	mark := len(b.owned)
	var err error
	if m.raw, err = b.upload(t.Data); err == nil && t.DType.Affine() {
		if m.scales, err = b.upload(t.Scales); err == nil {
			m.biases, err = b.upload(t.Biases)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	// The tensor-core kernels of prefill take outputs by eight.
	if !b.exact && packable(t) && m.out%8 == 0 {
		if !t.DType.Quantized() {
			m.tensorCoreShape = true
		} else {
			if err := b.uploader.Flush(); err != nil {
				return nil, err
			}
			if m.packed, err = b.device.pack(t, m.raw, m.scales, m.biases); err != nil {
				return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
			}
			if err := b.device.stream.Synchronize(); err != nil {
				return nil, err
			}
			for _, p := range b.owned[mark:] {
				b.device.ctx.Free(p)
			}
			b.owned = b.owned[:mark]
			m.raw, m.scales, m.biases = 0, 0, 0
		}
	}
	b.progress(int64(t.Bytes()))
	return m, nil
}

// upload copies bytes to new device memory, which the backend owns. The copy
// may still be under way when it returns.
func (b *Backend) upload(data []byte) (driver.Ptr, error) {
	p, err := b.device.ctx.Alloc(len(data))
	if err != nil {
		return 0, err
	}
	b.owned = append(b.owned, p)
	return p, b.uploader.Upload(p, data)
}

// Vector widens a norm weight or a bias to f32.
func (b *Backend) Vector(t backend.Tensor) (backend.Vector, error) {
	x, err := quant.Vector(t)
	if err != nil {
		return nil, err
	}
	n := len(x)
	data := make([]byte, 4*n)
	quant.Blocks(data, backend.F32, x)
	b.device.ctx.Enter()
	defer b.device.ctx.Leave()
	p, err := b.device.ctx.Alloc(len(data))
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	b.owned = append(b.owned, p)
	if err := b.device.ctx.Upload(p, data); err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	b.progress(int64(t.Bytes()))
	return &vector{b: b, n: n, data: p}, nil
}
