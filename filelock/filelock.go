// Package filelock keeps two processes from writing one file.
package filelock

import (
	"errors"
	"os"
)

// ErrHeld is the error of a file that somebody else holds.
var ErrHeld = errors.New("another process holds the lock")

// TryLock takes an open file for its opener until it is closed, or its process
// ends, however it ends. It does not wait: ErrHeld says that another opener, in
// this process or another one, has it. Where the system or the file system has
// no locks, it does nothing and returns nil.
func TryLock(f *os.File) error { return tryLock(f) }
