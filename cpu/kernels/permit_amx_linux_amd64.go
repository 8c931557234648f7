package kernels

import (
	"sync"

	"golang.org/x/sys/unix"
)

// permitTiles asks the kernel, once, to let this process use the tile
// registers: their 8 KB of state are off until then (Linux 5.16).
var permitTiles = sync.OnceValue(func() bool {
	const (
		request  = 0x1023 // ARCH_REQ_XCOMP_PERM
		tileData = 18     // XFEATURE_XTILEDATA
	)
	_, _, e := unix.RawSyscall(unix.SYS_ARCH_PRCTL, request, tileData, 0)
	return e == 0
})
