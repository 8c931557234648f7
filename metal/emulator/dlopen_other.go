//go:build !linux

package emulator

import "errors"

func dlopen(string) (uintptr, error) {
	return 0, errors.New("metal emulator: it runs on linux/amd64 only")
}
