package cpu

import (
	"testing"
	"time"
)

func TestMeasureBandwidth(t *testing.T) {
	for threads := 1; threads <= 3; threads++ {
		if g := measureBandwidth(threads, 0, 4<<20); !(g > 0.1 && g < 1e5) {
			t.Errorf("%d threads: %v GB/s", threads, g)
		}
	}
	if g := measureBandwidth(1, 0, 1<<62); g != 0 {
		t.Errorf("a buffer that cannot be had: %v GB/s, want 0", g)
	}
}

func TestReadPatterns(t *testing.T) {
	buf := make([]byte, 1<<20+4096)
	for _, p := range readPatterns {
		if p.stride%256 != 0 || p.streams < 1 {
			t.Errorf("%+v: stride is no multiple of 256", p)
		}
		p.read(buf)
	}
}

// BenchmarkBandwidth is the yardstick on its own.
func BenchmarkBandwidth(b *testing.B) {
	for _, threads := range []int{1, 2} {
		b.Run(map[int]string{1: "threads=1", 2: "threads=2"}[threads], func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(MeasureBandwidth(threads, 500*time.Millisecond), "GB/s")
			}
		})
	}
}
