//go:build unix

package hub

import (
	"io/fs"
	"syscall"
)

// freed is what the removal of a file frees: nothing where it has another name.
func freed(info fs.FileInfo) int64 {
	s, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return info.Size()
	case s.Nlink > 1:
		return 0
	}
	return int64(s.Blocks) * 512
}
