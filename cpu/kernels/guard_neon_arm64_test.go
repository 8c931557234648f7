//go:build linux || darwin

package kernels

import (
	"os"
	"syscall"
	"testing"

	"windrow/backend"
)

// TestNeonReadsOnlyTheWeight ends weights where unreadable memory begins, as a
// mapped file may.
func TestNeonReadsOnlyTheWeight(t *testing.T) {
	page := os.Getpagesize()
	const pages = 4
	mem, err := syscall.Mmap(-1, 0, (pages+1)*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(mem)
	if err := syscall.Mprotect(mem[pages*page:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	mem = mem[:pages*page]
	for _, dt := range []backend.DType{backend.BF16, backend.F16, backend.F32} {
		for _, in := range []int{1, 7, 8, 31, 33, 64, 71} {
			for out := 1; out <= 9; out++ {
				w := &Weight{dt: dt, out: out, in: in, data: mem[len(mem)-out*in*dt.Size():]}
				for _, rows := range []int{1, 2, 3, 4, 5} {
					x := make([]float32, rows*in)
					for _, p := range []Projector{neonProjector{}, neonKernels().Fast} {
						if p != nil && p.Takes(dt, in) {
							neonProject(p, w, x, rows, 0, out)
						}
					}
				}
				row := make([]float32, in)
				w.widenRow(row, out-1, neonWidenBF16, neonWidenF16)
			}
		}
	}
}
