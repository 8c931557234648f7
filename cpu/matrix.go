package cpu

import (
	"fmt"

	"windrow/backend"
	"windrow/cpu/kernels"
	"windrow/quant"
)

// matrix is a weight and the arithmetic that was chosen for it.
type matrix struct {
	kernels.Weight
	proj  kernels.Projector
	exact kernels.Projector // with activations in f32: of routers
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
	m := &matrix{Weight: kernels.NewWeight(t)}
	m.proj = b.k.Projector(&m.Weight, b.exact)
	m.exact = b.k.Projector(&m.Weight, true)
	return m
}

// Vector widens t to f32 and refuses what is not finite.
func (b *Backend) Vector(t backend.Tensor) (backend.Vector, error) {
	v, err := quant.Vector(t)
	if err != nil {
		return nil, err
	}
	return vector(v), nil
}
