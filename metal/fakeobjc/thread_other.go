//go:build !linux

package fakeobjc

// threadID would tell threads apart: here all are one.
func threadID() int { return 0 }
