package cpu

import (
	"unsafe"

	"windrow/backend"
)

// affineRow points to the scales and biases of row o, groups of each.
func affineRow(t *backend.Tensor, o, groups int) (scales, biases *byte) {
	return unsafe.SliceData(t.Scales[2*o*groups : 2*(o+1)*groups]), unsafe.SliceData(t.Biases[2*o*groups : 2*(o+1)*groups])
}
