package metal

import (
	"fmt"

	"windrow/backend"
	"windrow/quant"
)

// matrix is a weight [out, in] as the checkpoint has it.
type matrix struct {
	b *Backend
	weight
}

func (m *matrix) Out() int { return m.out }
func (m *matrix) In() int  { return m.in }

// vector is a weight [n] in f32.
type vector struct {
	b    *Backend
	n    int
	data view
}

func (v *vector) Len() int { return v.n }

// Matrix takes a weight: in place where its file is mapped, else as a copy. One of
// a type without kernels is converted (quant.ConvertedType).
func (b *Backend) Matrix(t backend.Tensor) (backend.Matrix, error) {
	if b.memory == nil {
		return nil, errClosed
	}
	if len(t.Shape) != 2 {
		return nil, fmt.Errorf("tensor %s: shape %v, want [out, in]", t.Name, t.Shape)
	}
	if err := t.Check(); err != nil {
		return nil, err
	}
	t = quant.Convert(t, b.exact)
	m := &matrix{b, weight{dtype: t.DType, out: t.Shape[0], in: t.Shape[1], group: t.Group}}
	var err error
	if m.data, err = b.weights.place(t.Data, weightElem(t.DType)); err == nil && t.DType.Affine() {
		if m.scales, err = b.weights.place(t.Scales, elemBF16); err == nil {
			m.biases, err = b.weights.place(t.Biases, elemBF16)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	return m, nil
}

// weightElem is the element type of a weight's data.
func weightElem(dt backend.DType) elem {
	switch dt {
	case backend.F32:
		return elemF32
	case backend.F16:
		return elemF16
	case backend.BF16:
		return elemBF16
	}
	return elemBytes
}

// Vector widens a norm weight or a bias to f32.
func (b *Backend) Vector(t backend.Tensor) (backend.Vector, error) {
	if b.memory == nil {
		return nil, errClosed
	}
	x, err := quant.Vector(t)
	if err != nil {
		return nil, err
	}
	n := len(x)
	data := make([]byte, 4*n)
	quant.Blocks(data, backend.F32, x)
	v, err := b.weights.copy(data, elemF32)
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	return &vector{b: b, n: n, data: v}, nil
}
