//go:build !unix

package testhelp

import "time"

// ProcessorTime is the time that has passed: there is no other clock here.
func ProcessorTime() time.Duration { return time.Since(began) }
