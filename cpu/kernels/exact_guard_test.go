//go:build linux || darwin

package kernels

import (
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"

	"windrow/backend"
	"windrow/cpu/kernels/kernelstest"
)

// guardedBytes returns n bytes that end where inaccessible memory begins.
func guardedBytes(t *testing.T, n int) []byte {
	t.Helper()
	page := os.Getpagesize()
	size := (n + page - 1) / page * page
	mem, err := syscall.Mmap(-1, 0, size+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(mem) })
	if err := syscall.Mprotect(mem[size:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return mem[size-n : size : size]
}

// TestExactEndOfMapping puts the weights at the very end of a mapping that an
// inaccessible page follows: reading past them would fault.
func TestExactEndOfMapping(t *testing.T) {
	fastTables(t, func(t *testing.T, k *Table) {
		r := rand.New(rand.NewPCG(9, 4))
		for _, dt := range []backend.DType{backend.BF16, backend.F16, backend.F32} {
			for _, sh := range exactShapes {
				w := make([]float32, sh.out*sh.in)
				kernelstest.Gaussian(r, w, 1)
				data, _ := kernelstest.Encode(dt, w)
				guarded := guardedBytes(t, len(data))
				copy(guarded, data)
				for _, rows := range []int{1, 3, 8, 20} {
					x := make([]float32, rows*sh.in)
					kernelstest.Gaussian(r, x, 1)
					m := &Weight{dt: dt, out: sh.out, in: sh.in, data: guarded}
					got := projectAll(k.Exact, x, rows, m, 4)
					m.data = data
					want := projectAll(k.Exact, x, rows, m, 64)
					kernelstest.Compare(t, fmt.Sprintf("%v %dx%d", dt, sh.out, sh.in), got, want, 0, 0)
				}
			}
		}
		for n := range 70 {
			dst := make([]float32, n)
			k.WidenBF16(dst, guardedBytes(t, 2*n))
			k.WidenF16(dst, guardedBytes(t, 2*n))
			k.WidenInt8(dst, guardedBytes(t, n), 1)
			k.NarrowBF16(guardedBytes(t, 2*n), dst)
		}
	})
}
