package fetch

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// reserve takes the blocks of a range of a file, where the file system can do so ahead.
func reserve(f *os.File, at, n int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, at, n)
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			return &os.PathError{Op: "allocate", Path: f.Name(), Err: err}
		}
		if !errors.Is(err, unix.EINTR) {
			return nil
		}
	}
}

// shared reports whether a folder lies on a file system of several machines, whose locks
// need not keep others out.
func shared(dir string) bool {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return false
	}
	switch uint32(s.Type) {
	case 0x6969, 0x0BD00BD0, 0x47504653, 0xFF534D42, 0xFE534D42, 0x00C36400, 0x19830326: // NFS, Lustre, GPFS, CIFS, SMB2, Ceph, BeeGFS
		return true
	}
	return false
}
