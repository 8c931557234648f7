//go:build unix

package loadtest

import (
	"syscall"
	"time"
)

// processorTime is what this process has had of the processors so far.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
