//go:build windrow_nogpu && !windows

package driver

func openLibrary(string) (uintptr, error) { return 0, errNotBuilt }

func findSymbol(uintptr, string) (uintptr, error) { return 0, errNotBuilt }
