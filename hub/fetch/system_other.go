//go:build !unix

package fetch

import (
	"errors"
	"os"
	"syscall"
)

// isNoSpace reports whether an error says that the disk is full: ERROR_DISK_FULL and
// ERROR_HANDLE_DISK_FULL on Windows.
func isNoSpace(err error) bool {
	var n syscall.Errno
	return errors.As(err, &n) && (n == 112 || n == 39)
}

// isReadOnly reports whether an error says that a disk is write-protected.
func isReadOnly(err error) bool {
	var n syscall.Errno
	return errors.As(err, &n) && n == 19
}

// allocated is how many bytes of the disk a file has.
func allocated(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
