//go:build race

package loadtest

// slower is by how much the race detector's bookkeeping may slow bounds of time down.
const slower = 20
