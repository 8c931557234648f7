package kernels

//go:noescape
func prefetchLines(p *byte, pages, lines int)

// prefetchRows asks for the first size bytes of rows that lie stride apart.
//
//go:noescape
func prefetchRows(p *byte, stride, rows, size int)

// Prefetch asks for src to be brought into L2, one line of each 4 KiB page in
// turn: the hardware follows one stream a page, and 8 of them read nearly
// twice what one does.
func Prefetch(src []byte) {
	if pages := len(src) / 4096; pages > 0 {
		prefetchLines(&src[0], pages, 64)
	}
}
