package cuda

import (
	"fmt"

	"windrow/backend"
	"windrow/cuda/driver"
	"windrow/cuda/launch"
	"windrow/quant"
)

// matrix is a weight [out, in] of a backend.
type matrix struct {
	b       *Backend
	weight  launch.Weight
	tensor  backend.Tensor // on the host, as stored: quantised embeddings are decoded there
	decoded *launch.Weight // as floats, once that was asked for
	other   *matrix        // in shorter groups, likewise
}

func (m *matrix) Out() int { return m.weight.Out }
func (m *matrix) In() int  { return m.weight.In }

// view is n outputs of a weight, from first on, in its memory; false where they
// do not lie apart from others.
func (m *matrix) view(first, n int) (*matrix, bool) {
	w, ok := m.weight.View(first, n)
	if !ok {
		return nil, false
	}
	return &matrix{b: m.b, weight: w, tensor: m.tensor}, true
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
	// The tensor-core kernels of prefill take outputs by eight.
	fast := !b.exact && launch.Packable(t) && t.Shape[0]%8 == 0
	if fast && t.DType == backend.Affine4 {
		driver.Populate(t.Scales) // page by page they take as long as half of an upload
		if quant.ScalesReachHalf(t) {
			// Kernels take them times 2^129 (kernels/rounded.cuh). No published weight is known to
			// be of the kind.
			t = quant.ConvertTo(t, backend.BF16)
		}
	}
	b.device.Context.Enter()
	defer b.device.Context.Leave()
	m := &matrix{b: b, weight: launch.Weight{Partial: t.Split == backend.SplitInputs && b.device.Grouped(), DType: t.DType, Out: t.Shape[0], In: t.Shape[1], Group: t.Group}}
	w := &m.weight
	if t.Split == backend.SplitNone { // projections are never decoded, and may be copies that were made for this
		m.tensor = stored
	}
	var err error
	if fast && t.DType.Quantized() {
		w.Packed, err = b.pack(t)
	} else if w.Raw, err = b.upload(t.Data); err == nil && t.DType.Affine() {
		if w.Scales, err = b.upload(t.Scales); err == nil {
			w.Biases, err = b.upload(t.Biases)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	w.TensorCoreShape = fast && !t.DType.Quantized()
	b.progress(int64(quant.ConvertedBytes(stored, b.exact)))
	return m, nil
}

// upload copies bytes to new device memory, which the backend owns. The copy
// may still be under way when it returns.
func (b *Backend) upload(data []byte) (driver.Ptr, error) {
	p, err := b.take(len(data))
	if err != nil {
		return 0, err
	}
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
	b.device.Context.Enter()
	defer b.device.Context.Leave()
	p, err := b.take(len(data))
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	if err := b.device.Context.Upload(p, data); err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	b.progress(int64(t.Bytes()))
	return &vector{b: b, n: n, data: p}, nil
}
