//go:build unix

package fetch

import (
	"errors"
	"os"
	"syscall"
)

// isNoSpace reports whether an error says that the disk, or a user's share of it, is full.
func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// isReadOnly reports whether an error says that a file system can only be read.
func isReadOnly(err error) bool { return errors.Is(err, syscall.EROFS) }

// allocated is how many bytes of the disk a file has.
func allocated(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int64(s.Blocks) * 512
	}
	return 0
}
