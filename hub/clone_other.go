//go:build !linux

package hub

import (
	"errors"
	"os"
)

// clone is not there: macOS clones by a path that is not there yet, and io.Copy on
// Windows and elsewhere does what the system offers.
func clone(to, from *os.File) error { return errors.ErrUnsupported }
