package cpu

import (
	"fmt"

	"windrow/backend"
	"windrow/quant"
)

// matrix is a weight [out, in] as its checkpoint holds it: data is kept, not
// copied, and of any alignment.
type matrix struct {
	label   string
	dt      backend.DType
	out, in int
	data    []byte
	tensor  backend.Tensor // as it was given: of quantised types the scales and the group, too
	proj    projector
}

func (m *matrix) Out() int { return m.out }
func (m *matrix) In() int  { return m.in }

// stride is the bytes of one row.
func (m *matrix) stride() int { return m.dt.RowBytes(m.in) }

// widenRow converts row o to f32.
func (m *matrix) widenRow(dst []float32, o int, bf16, f16 func([]float32, []byte)) {
	if m.dt.Quantized() {
		quant.Row(dst, &m.tensor, o)
		return
	}
	src := m.data[o*m.stride() : (o+1)*m.stride()]
	switch m.dt {
	case backend.BF16:
		bf16(dst[:m.in], src)
	case backend.F16:
		f16(dst[:m.in], src)
	default:
		widenF32(dst[:m.in], src)
	}
}

// vector is a weight [n], widened to f32.
type vector []float32

func (v vector) Len() int { return len(v) }

// Matrix keeps t.Data; nothing is copied.
func (b *Backend) Matrix(t backend.Tensor) (backend.Matrix, error) {
	if len(t.Shape) != 2 {
		return nil, fmt.Errorf("tensor %s: shape %v, want [out, in]", t.Name, t.Shape)
	}
	if err := t.Check(); err != nil {
		return nil, err
	}
	return b.matrix(t), nil
}

// matrix chooses the arithmetic for t, which it does not read.
func (b *Backend) matrix(t backend.Tensor) *matrix {
	out, in := t.Shape[0], t.Shape[1]
	m := &matrix{label: t.Name, dt: t.DType, out: out, in: in, data: t.Data, tensor: t, proj: b.k.exact}
	if t.DType.Quantized() {
		m.proj = b.quantProjector(&m.tensor)
		return m
	}
	if !b.exact && b.k.fast != nil && b.k.fast.takes(t.DType, in) {
		m.proj = b.k.fast
	}
	if !m.proj.takes(t.DType, in) {
		m.proj = genericProjector{}
	}
	return m
}

// quantProjector chooses the arithmetic for a quantised weight.
func (b *Backend) quantProjector(t *backend.Tensor) projector {
	if !b.exact && b.k.quant != nil {
		if p := b.k.quant(t); p != nil {
			return p
		}
	}
	return newPanelProjector(b.k)
}

// Vector widens t to f32 and refuses what is not finite.
func (b *Backend) Vector(t backend.Tensor) (backend.Vector, error) {
	v, err := quant.Vector(t)
	if err != nil {
		return nil, err
	}
	return vector(v), nil
}
