// Package driver speaks to Metal through Objective-C messages, without cgo and
// without build tags above the one file that binds the runtime.
package driver

// Buffer is device memory that the host shares.
type Buffer struct{}
