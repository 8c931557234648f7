package model_test

import (
	"bytes"
	"fmt"
	"testing"
	"unsafe"

	"windrow/backend"
	"windrow/model"
)

// Each tensor of a mapped model lies in one of its mappings; the embedded
// model has none.
func TestMappings(t *testing.T) {
	folder, err := model.OpenFolder("testdata/golden/qwen3-untied")
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	shape, _ := model.ShapeConfig("tiny-gsm")
	for name, src := range map[string]model.Source{"folder": folder, "random": model.RandomSource(shape, backend.Affine4, 1)} {
		mappings := model.Mappings(src)
		for _, n := range src.Names() {
			x, _ := src.Tensor(n)
			for _, part := range [][]byte{x.Data, x.Scales, x.Biases} {
				if len(part) > 0 && !within(part, mappings) {
					t.Errorf("%s: %s lies in none of %d mappings", name, n, len(mappings))
				}
			}
		}
	}
	if n := len(model.Mappings(tiny(t))); n != 0 {
		t.Errorf("the embedded model has %d mappings", n)
	}
}

func within(part []byte, mappings [][]byte) bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(part)))
	for _, m := range mappings {
		if from := uintptr(unsafe.Pointer(unsafe.SliceData(m))); at >= from && at+uintptr(len(part)) <= from+uintptr(len(m)) {
			return true
		}
	}
	return false
}

// EmptySource has the tensors of RandomSource.
func TestEmptySource(t *testing.T) {
	shape, _ := model.ShapeConfig("tiny-gsm")
	for _, dt := range []backend.DType{backend.F16, backend.Affine8, backend.Q6_K} {
		shape := *shape
		shape.HiddenSize, shape.IntermediateSize, shape.Heads = 256, 512, 4
		empty, random := model.EmptySource(&shape, dt), model.RandomSource(&shape, dt, 1)
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
