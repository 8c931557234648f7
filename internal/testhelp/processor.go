package testhelp

import "time"

// began is a beginning for clocks.
var began = time.Now()

// Took is how long f takes: what passes on a clock, or what this process has of the processors
// meanwhile where that is less, as others use the machine, too. It is for work that waits for
// nothing.
func Took(f func()) time.Duration {
	began, had := time.Now(), ProcessorTime()
	f()
	return min(time.Since(began), ProcessorTime()-had)
}
