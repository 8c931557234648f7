//go:build linux || darwin || freebsd

package fetch

import "golang.org/x/sys/unix"

// freeSpace is how many bytes a folder's file system has for this user; false: not known.
func freeSpace(dir string) (int64, bool) {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), true
}
