//go:build linux || darwin || freebsd

package fetch

import (
	"os"

	"golang.org/x/sys/unix"
)

// freeSpace is how many bytes a folder's file system has for this user; false: not known.
func freeSpace(dir string) (int64, bool) {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), true
}

// allocate gives a file its size, with its blocks where the file system can: it cannot
// run out half-way then.
func allocate(f *os.File, size int64) error {
	if size == 0 {
		return nil
	}
	if err := reserve(f, size); err != nil {
		return err
	}
	return f.Truncate(size)
}
