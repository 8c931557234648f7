//go:build !unix

package hub

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// notDir is the error of a path that leads through a file: elsewhere that is missing.
var notDir = fs.ErrNotExist

// unwritable reports whether an error says that a cache can only be read; Windows has
// ERROR_WRITE_PROTECT.
func unwritable(err error) bool { return os.IsPermission(err) || errors.Is(err, syscall.Errno(19)) }
