//go:build !linux && !darwin && !freebsd && !windows

package fetch

func freeSpace(string) (int64, bool) { return 0, false }
