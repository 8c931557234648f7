package emulator

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// library compiles a file of testdata.
func library(t testing.TB, file string, b Build) *Library {
	t.Helper()
	Available(t)
	source, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	l, err := Compile(fmt.Sprintf("#line 1 %q\n%s", file, source), b)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// memory binds the values at an index.
func memory[T any](index int, v []T) Arg {
	return Arg{Index: index, Pointer: unsafe.Pointer(&v[0]), Length: len(v) * int(unsafe.Sizeof(v[0]))}
}

// structure binds a parameter struct.
func structure[T any](index int, v T) Arg {
	return Arg{Index: index, Bytes: unsafe.Slice((*byte)(unsafe.Pointer(&v)), unsafe.Sizeof(v))}
}

func kernelOf(t testing.TB, l *Library, name string) *Kernel {
	t.Helper()
	k, err := l.Kernel(name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// cpuTime is what the process has used of CPUs.
func cpuTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkEmulator(b *testing.B) {
	for _, build := range []Build{Plain, Fast, Checked} {
		l := library(b, "speed.metal", build)
		for _, c := range []struct {
			kernel string
			macs   float64 // a step of a simdgroup
		}{{"speed_multiply", 512}, {"speed_tile", 2048}, {"speed_sum", 0}, {"speed_barrier", 0}, {"speed_memory", 0}} {
			b.Run(fmt.Sprintf("%s/%s", c.kernel[6:], build), func(b *testing.B) {
				const n, simdgroups = 1000, 4
				out := make([]float32, 4096)
				k := kernelOf(b, l, c.kernel)
				launch := Launch{Groups: [3]int{1, 1, 1}, Threads: [3]int{32 * simdgroups, 1, 1}, Args: []Arg{memory(0, out), structure(1, uint32(n))}}
				start := cpuTime()
				for b.Loop() {
					if err := k.Run(launch); err != nil {
						b.Fatal(err)
					}
				}
				each := (cpuTime() - start).Seconds() / float64(b.N) / n / simdgroups
				b.ReportMetric(each*1e9, "ns/simdgroup")
				if c.macs > 0 {
					b.ReportMetric(c.macs/each/1e9, "Gmac/s")
				}
			})
		}
	}
}
