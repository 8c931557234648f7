package emulator_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"windrow/cuda/driver"
	"windrow/cuda/emulator"
)

// rig runs kernels of a file of testdata. Those of *_hopper.cu are for compute
// capability 9.0 alone.
type rig struct {
	ctx    *driver.Context
	stream *driver.Stream
	module *driver.Module
}

func newRig(t testing.TB, checked bool, file string) *rig {
	t.Helper()
	if strings.HasSuffix(file, "_hopper") {
		return newRigWith(t, checked, file, file)
	}
	return newRigWith(t, checked, file)
}

// newRigWith has a library with those files for compute capability 9.0 alone.
func newRigWith(t testing.TB, checked bool, file string, hopper ...string) *rig {
	t.Helper()
	architecture, version := "sm_80", "ptx74"
	if strings.HasSuffix(file, "_hopper") {
		architecture, version = "sm_90a", "ptx81"
	}
	lib, err := driver.Open(driver.Options{Library: emulator.LibraryOf(t, "cuda/emulator/testdata", checked, hopper...)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := lib.NewContext(0)
	if err != nil {
		t.Fatal(err)
	}
	ctx.Enter()
	t.Cleanup(func() {
		ctx.Leave()
		ctx.Close()
	})
	stream, err := ctx.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	module, err := ctx.Load(image(t, file, architecture, version))
	if err != nil {
		t.Fatal(err)
	}
	return &rig{ctx, stream, module}
}

// buffer is device memory of n words.
func (r *rig) buffer(t testing.TB, n int) driver.Ptr {
	t.Helper()
	p, err := r.ctx.Alloc(n * 4)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.ctx.Upload(p, make([]byte, n*4)); err != nil {
		t.Fatal(err)
	}
	return p
}

func (r *rig) words(t testing.TB, p driver.Ptr, n int) []uint32 {
	t.Helper()
	data, words := make([]byte, n*4), make([]uint32, n)
	if err := r.ctx.Download(data, p); err != nil {
		t.Fatal(err)
	}
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(data[i*4:])
	}
	return words
}

func config(blocks, threads, shared int) driver.LaunchConfig {
	return driver.LaunchConfig{Grid: [3]uint32{uint32(blocks), 1, 1}, Block: uint32(threads), Shared: uint32(shared)}
}

// run launches a kernel and waits.
func (r *rig) run(name string, blocks, threads, shared int, args ...uint64) error {
	f, err := r.module.Function(name)
	if err != nil {
		return err
	}
	if err := r.stream.Launch(f, config(blocks, threads, shared), args); err != nil {
		return err
	}
	return r.stream.Synchronize()
}

func BenchmarkEmulator(b *testing.B) {
	for _, checked := range []bool{false, true} {
		for _, kernel := range []string{"mma", "shuffle", "sync", "fma"} {
			b.Run(fmt.Sprintf("%s/checked=%t", kernel, checked), func(b *testing.B) {
				r := newRig(b, checked, "speed")
				out := r.buffer(b, 128)
				const n = 1000
				start := time.Now()
				for b.Loop() {
					if err := r.run("speed_"+kernel, 1, 128, 0, uint64(out), n); err != nil {
						b.Fatal(err)
					}
				}
				each := time.Since(start).Seconds() / float64(b.N) / n / 4 // of a warp
				b.ReportMetric(each*1e9, "ns/warp")
				if strings.HasPrefix(kernel, "mma") {
					b.ReportMetric(2048/each/1e9, "Gmac/s")
				}
			})
		}
	}
}
