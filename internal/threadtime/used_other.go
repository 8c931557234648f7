//go:build !linux && !darwin && !freebsd

package threadtime

import "time"

func used() (time.Duration, bool) { return 0, false }
