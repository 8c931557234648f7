package quant

import (
	"fmt"
	"math"

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
	for i, v := range x {
		if v := float64(v); math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("tensor %s: element %d is %v, want a finite number", t.Name, i, v)
		}
	}
	return x, nil
}
