//go:build !amd64

package kernels

import (
	"windrow/backend"
	"windrow/quant"
)

// decodeFloat8 is quant.Row: there are no kernels for it yet.
func decodeFloat8(dst []float32, t *backend.Tensor, o int) { quant.Row(dst, t, o) }
