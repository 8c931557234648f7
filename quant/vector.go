package quant

import (
	"fmt"
	"math"
	"slices"

	"windrow/backend"
)

// Vector widens a norm weight or a bias, floats of one dimension, all of them
// finite.
func Vector(t backend.Tensor) ([]float32, error) {
	if len(t.Shape) != 1 || t.DType.Quantized() {
		return nil, fmt.Errorf("tensor %s: %v of shape %v, want floats of one dimension", t.Name, t.DType, t.Shape)
	}
	if err := t.Check(); err != nil {
		return nil, err
	}
	x := make([]float32, t.Shape[0])
	Row(x, &t, 0)
	if i := infinite(x); i >= 0 {
		return nil, fmt.Errorf("tensor %s: element %d is %v, want a finite number", t.Name, i, x[i])
	}
	return x, nil
}

// Finite reads a matrix and refuses one that holds NaN or an infinity: for small ones
// that nothing behind would show to be wrong.
func Finite(t backend.Tensor) error {
	if err := t.Check(); err != nil {
		return err
	}
	x := make([]float32, t.Shape[len(t.Shape)-1])
	for o := range t.Elements() / len(x) {
		Row(x, &t, o)
		if i := infinite(x); i >= 0 {
			return fmt.Errorf("tensor %s: element [%d %d] is %v, want a finite number", t.Name, o, i, x[i])
		}
	}
	return nil
}

// infinite is the first place of what is not finite; -1: all is.
func infinite(x []float32) int {
	return slices.IndexFunc(x, func(v float32) bool { return math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) })
}
