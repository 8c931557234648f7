//go:build unix

package kernels

import (
	"testing"

	"golang.org/x/sys/unix"
)

// guarded is a copy of data that ends where its mapping ends, and starts at
// the start of one: a read past either end faults.
func guarded(t *testing.T, data []byte, atEnd bool) []byte {
	page := unix.Getpagesize()
	size := (len(data) + page - 1) / page * page
	m, err := unix.Mmap(-1, 0, size+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(m) })
	for _, fence := range [][]byte{m[:page], m[page+size:]} {
		if err := unix.Mprotect(fence, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	at := page
	if atEnd {
		at = page + size - len(data)
	}
	return m[at : at+len(data) : at+len(data)][:copy(m[at:at+len(data)], data)]
}
