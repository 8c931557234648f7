//go:build !linux

package emulation

func lock(string) (unlock func(), err error) { return func() {}, nil }
