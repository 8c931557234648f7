//go:build unix

package testhelp

import (
	"syscall"
	"time"
)

// ProcessorTime is what this process has had of the processors so far.
func ProcessorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return time.Since(began)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
