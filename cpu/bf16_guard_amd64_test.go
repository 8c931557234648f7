//go:build unix

package cpu

import (
	"math/rand/v2"
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

func TestBF16ReadsOnlyTheWeight(t *testing.T) {
	for name, pr := range bf16Projectors() {
		for _, c := range []struct{ out, in int }{{1, 32}, {5, 96}, {16, 64}, {47, 544}, {67, 1024}, {31, 2048}} {
			rng := rand.New(rand.NewPCG(13, uint64(c.in)))
			w := bf16Matrix(rng, c.out, c.in, 0)
			for _, rows := range []int{1, 6, 20, 40} {
				x := randomRows(rng, rows*c.in)
				want := runProjector(pr, w, x, rows, 0, c.out, c.out)
				for _, atEnd := range []bool{false, true} {
					g := *w
					g.data = guarded(t, w.data, atEnd)
					for i, v := range runProjector(pr, &g, x, rows, 0, c.out, c.out) {
						if v != want[i] {
							t.Fatalf("%s %dx%d rows %d: element %d is %v, want %v", name, c.out, c.in, rows, i, v, want[i])
						}
					}
				}
			}
		}
	}
}
