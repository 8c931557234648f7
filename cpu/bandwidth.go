package cpu

import (
	"runtime"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/edsrzf/mmap-go"

	"windrow/cpu/kernels"
)

// bandwidthBytes is the buffer of MeasureBandwidth: several times the L3 of the cores that
// read. That is 4 MiB a core, 12 on those with stacked cache: 64 threads in 512 MiB would
// measure it and not the memory.
func bandwidthBytes(threads int) int { return max(512<<20, threads*(32<<20)) }

// readPattern is a way of reading: streams that advance together, stride bytes
// from one to the next, with prefetches ahead bytes before the loads.
type readPattern struct{ streams, stride, ahead int }

// readPatterns are those worth trying. The hardware prefetcher follows one
// stream in each page of 4 KiB: on a Sapphire Rapids virtual machine one
// thread reads 10 GB/s linearly and 16 to 18 from 8 or 16 pages in turn, while
// a Zen 5 prefers the linear read.
var readPatterns = []readPattern{
	{1, 4 << 10, 0},
	{1, 4 << 10, 2 << 10},
	{8, 4 << 10, 0},
	{8, 16 << 10, 0},
	{16, 4 << 10, 0},
	{16, 12 << 10, 512},
}

// MeasureBandwidth returns the rate in GB/s (10^9 bytes) at which that many
// threads read memory, as the median pass over 512 MiB or, from 17 threads on, 32 a thread,
// of the best access pattern, in about d. It is the yardstick for the kernels: the weights of a
// forward cannot be read faster. It returns 0 if there is no memory for it.
func MeasureBandwidth(threads int, d time.Duration) (gbps float64) {
	return measureBandwidth(threads, d, bandwidthBytes(threads))
}

func measureBandwidth(threads int, d time.Duration, size int) float64 {
	buf, err := mmap.MapRegion(nil, size, mmap.RDWR, mmap.ANON, 0)
	if err != nil {
		return 0
	}
	defer func() { _ = buf.Unmap() }()
	threads = max(1, threads)
	share := size / threads &^ 4095
	// A page that was never written is not memory of its own.
	eachThread(threads, func(t int) {
		for i := t * share; i < (t+1)*share; i += 4096 {
			buf[i] = byte(i>>12) | 1
		}
	})
	rates := make([][]float64, len(readPatterns))
	for start := time.Now(); len(rates[0]) < 3 || time.Since(start) < d; {
		for i, p := range readPatterns {
			took := eachThread(threads, func(t int) { p.read(buf[t*share : (t+1)*share]) })
			rates[i] = append(rates[i], float64(share*threads)/took.Seconds()/1e9)
		}
	}
	best := 0.0
	for _, r := range rates {
		slices.Sort(r)
		best = max(best, r[len(r)/2])
	}
	return best
}

// read reads buf once.
func (p readPattern) read(buf []byte) {
	section := p.streams * p.stride
	for len(buf) >= section {
		kernels.ReadLines(unsafe.Pointer(&buf[0]), p.streams, p.stride, p.ahead)
		buf = buf[section:]
	}
	for len(buf) >= 4096 {
		kernels.ReadLines(unsafe.Pointer(&buf[0]), 1, 4096, 0)
		buf = buf[4096:]
	}
}

// eachThread runs f on that many threads at once and returns the time from
// their common start to the last end.
func eachThread(threads int, f func(t int)) time.Duration {
	var ready, done sync.WaitGroup
	begin := make(chan struct{})
	for t := range threads {
		ready.Add(1)
		done.Add(1)
		go func() {
			defer done.Done()
			runtime.LockOSThread()
			ready.Done()
			<-begin
			f(t)
		}()
	}
	ready.Wait()
	start := time.Now()
	close(begin)
	done.Wait()
	return time.Since(start)
}
