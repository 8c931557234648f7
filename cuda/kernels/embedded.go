//go:build !windrow_nogpu

package kernels

import "embed"

//go:embed *.ptx.gz
var images embed.FS
