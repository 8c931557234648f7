package synthetic_test

import (
	"bytes"
	"fmt"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/synthetic"
)

// EmptySource has the tensors of RandomSource.
func TestEmptySource(t *testing.T) {
	shape, _ := synthetic.ShapeConfig("tiny-gsm")
	for _, dt := range []backend.DType{backend.F16, backend.Affine8, backend.Q6_K} {
		shape := *shape
		shape.HiddenSize, shape.IntermediateSize, shape.Heads = 256, 512, 4
		empty, random := synthetic.EmptySource(&shape, dt), synthetic.RandomSource(&shape, dt, 1)
		if got, want := fmt.Sprint(empty.Names()), fmt.Sprint(random.Names()); got != want {
			t.Fatalf("names %s, want %s", got, want)
		}
		for _, n := range empty.Names() {
			x, _ := empty.Tensor(n)
			y, _ := random.Tensor(n)
			if err := x.Check(); err != nil {
				t.Error(err)
			}
			if x.DType != y.DType || x.Bytes() != y.Bytes() || bytes.ContainsFunc(x.Data[:1], func(r rune) bool { return r != 0 }) {
				t.Errorf("%s: %v of %d bytes, want %v of %d", n, x.DType, x.Bytes(), y.DType, y.Bytes())
			}
		}
	}
}

// Weights can be invented in every type that is listed.
func TestDTypes(t *testing.T) {
	shape, _ := synthetic.ShapeConfig("tiny-gsm")
	config := *shape
	config.HiddenSize, config.IntermediateSize, config.Heads, config.Layers = 256, 512, 4, 1
	for _, dt := range synthetic.DTypes() {
		for kind, src := range map[string]checkpoint.Source{"random": synthetic.RandomSource(&config, dt, 1), "empty": synthetic.EmptySource(&config, dt)} {
			for _, name := range src.Names() {
				if x, _ := src.Tensor(name); x.Check() != nil {
					t.Errorf("%s, %v: %v", kind, dt, x.Check())
				}
			}
		}
	}
}
