//go:build linux || darwin || freebsd

package threadtime

import (
	"time"

	"golang.org/x/sys/unix"
)

// used is what the thread has taken so far.
func used() (time.Duration, bool) {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0, false
	}
	return time.Duration(t.Nano()), true
}
