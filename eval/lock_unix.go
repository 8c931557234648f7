//go:build darwin || freebsd || linux || netbsd || openbsd

package eval

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockFile takes an output file for this process until it is closed: two
// runs that resume one file would write every item twice.
func lockFile(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return errors.New("another run is writing it")
	case errors.Is(err, syscall.ENOTSUP), errors.Is(err, syscall.ENOLCK), errors.Is(err, syscall.ENOSYS):
		// Some network file systems have no locks.
		return nil
	case err != nil:
		return fmt.Errorf("lock: %w", err)
	}
	return nil
}
