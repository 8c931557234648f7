//go:build !linux

package emulator

func lock(string) (unlock func(), err error) { return func() {}, nil }
