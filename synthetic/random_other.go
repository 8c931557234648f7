//go:build !linux

package synthetic

func adviseHugePages([]byte) {}
