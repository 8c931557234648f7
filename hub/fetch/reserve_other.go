//go:build !linux

package fetch

import "os"

// reserve does nothing: the file is sparse. (Windows gives files their blocks by itself.)
func reserve(f *os.File, at, n int64) error { return nil }

// shared is not known.
func shared(dir string) bool { return false }
