// Package threadtime measures what a piece of work takes of a processor: where others keep
// that busy, much less than passes on a clock.
package threadtime

import (
	"runtime"
	"time"
)

// Meter measures from Start on. The goroutine that began stays on its thread until Stop.
type Meter struct {
	thread time.Duration
	began  time.Time // where nobody says what a thread takes
	known  bool
}

// Start begins to measure what the calling goroutine does.
func Start() *Meter {
	runtime.LockOSThread()
	m := &Meter{began: time.Now()}
	m.thread, m.known = used()
	return m
}

// Passed is the processor's time since Start, or, where that is not known, the clock's.
func (m *Meter) Passed() time.Duration {
	if m.known {
		if t, ok := used(); ok {
			return t - m.thread
		}
	}
	return time.Since(m.began)
}

// Stop ends the measuring.
func (m *Meter) Stop() { runtime.UnlockOSThread() }
