package emulator

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

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
