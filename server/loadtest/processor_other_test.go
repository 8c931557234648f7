//go:build !unix

package loadtest

import "time"

var began = time.Now()

// processorTime is the time that has passed: there is no other clock here.
func processorTime() time.Duration { return time.Since(began) }
