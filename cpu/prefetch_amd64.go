package cpu

//go:noescape
func prefetchLines(p *byte, pages, lines int)

// prefetch asks for src to be brought into L2 and returns what is left of it:
// share/128 of each of its 4 KiB pages at a time, the pages in turn. The
// hardware follows one stream a page, and 8 of them read nearly twice what one
// does.
func prefetch(src []byte, share int) []byte {
	const page, line = 4096, 64
	lines := (page/line*share + 127) / 128
	if len(src) < line {
		return nil
	}
	prefetchLines(&src[0], (len(src)+page-1)/page, lines)
	return src[min(len(src), lines*line):]
}
