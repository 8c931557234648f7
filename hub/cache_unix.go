//go:build unix

package hub

import (
	"errors"
	"os"
	"syscall"
)

// notDir is the error of a path that leads through a file.
const notDir = syscall.ENOTDIR

// unwritable reports whether an error says that a cache can only be read.
func unwritable(err error) bool { return os.IsPermission(err) || errors.Is(err, syscall.EROFS) }
