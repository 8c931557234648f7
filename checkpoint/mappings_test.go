package checkpoint_test

import (
	"testing"
	"unsafe"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/models/tinygsm"
	"windrow/synthetic"
)

// Each tensor of a mapped model lies in one of its mappings; the embedded
// model has none.
func TestMappings(t *testing.T) {
	folder, err := checkpoint.OpenFolder("../model/testdata/golden/qwen3-untied")
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	shape, _ := synthetic.ShapeConfig("tiny-gsm")
	for name, src := range map[string]checkpoint.Source{"folder": folder, "random": synthetic.RandomSource(shape, backend.Affine4, 1)} {
		mappings := checkpoint.Mappings(src)
		for _, n := range src.Names() {
			x, _ := src.Tensor(n)
			for _, part := range [][]byte{x.Data, x.Scales, x.Biases} {
				if len(part) > 0 && !within(part, mappings) {
					t.Errorf("%s: %s lies in none of %d mappings", name, n, len(mappings))
				}
			}
		}
	}
	if !tinygsm.Available {
		return // there is no embedded model
	}
	embedded, err := checkpoint.New(tinygsm.Files())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(checkpoint.Mappings(embedded)); n != 0 {
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
