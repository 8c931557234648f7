//go:build !race

package loadtest

// slower is 1: bounds of time are as they stand.
const slower = 1
