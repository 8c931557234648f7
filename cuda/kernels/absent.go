//go:build windrow_nogpu

package kernels

import "embed"

var images embed.FS // no images
