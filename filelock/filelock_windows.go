package filelock

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/windows"
)

// lockedByte is what of a file is locked: locks are mandatory here, so it lies
// where no file has data, and the file can be read and written.
const lockedByte = 1 << 62

func tryLock(f *os.File) error {
	at := windows.Overlapped{OffsetHigh: lockedByte >> 32}
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at)
	switch {
	case errors.Is(err, windows.ERROR_LOCK_VIOLATION), errors.Is(err, windows.ERROR_IO_PENDING):
		return ErrHeld
	case errors.Is(err, windows.ERROR_NOT_SUPPORTED), errors.Is(err, windows.ERROR_INVALID_FUNCTION):
		return nil // a file system without locks
	case err != nil:
		return fmt.Errorf("lock: %w", err)
	}
	return nil
}
