//go:build !linux

package cpu

// adviseHugePages leaves the size of pages to the system.
func adviseHugePages([]byte) {}
