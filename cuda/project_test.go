package cuda

import (
	"os"
	"strings"
	"testing"

	"windrow/backend"
)

// TestProjectionsOfSmallDevices runs the projections as on a device that gives
// a block 99 KiB (compute capability 8.6): eight warps instead of sixteen.
func TestProjectionsOfSmallDevices(t *testing.T) {
	d := testDevice(t)
	d.info.SharedPerBlock = 99 << 10
	eight := 0
	for _, f := range projectFormats {
		packed, ok := formatOf(f.dt, f.group)
		if !ok || d.streamWarps(packed) != 8 {
			continue // as on larger devices
		}
		eight++
		for _, check := range []func(*device, backend.DType, int) error{checkProjections, checkRowBits, checkNormed} {
			if err := check(d, f.dt, f.group); err != nil {
				t.Errorf("%v in groups of %d: %v", f.dt, f.group, err)
			}
		}
	}
	if eight != 5 { // affine8 in three groups, q8_0, q6_k
		t.Errorf("%d formats with eight warps, want 5", eight)
	}
}

// TestTiledTimes compares the forms of kernels/tiled.cuh on a GPU.
func TestTiledTimes(t *testing.T) {
	if os.Getenv("WINDROW_CUDA_DEVICE") == "" || os.Getenv("WINDROW_BENCH_TILED") == "" {
		t.Skip("set WINDROW_CUDA_DEVICE and WINDROW_BENCH_TILED to a type of weights")
	}
	for _, f := range projectFormats {
		if f.dt.String() == os.Getenv("WINDROW_BENCH_TILED") && f.dt.Quantized() && (f.group == 0 || f.group == 64) {
			testDevice(t).benchTiled(os.Stdout, f.dt, 8, 16, 24, 32, 48, 64, 128)
		}
	}
}

// TestWideTimes compares the forms of kernels/wide.cuh on a GPU.
func TestWideTimes(t *testing.T) {
	if os.Getenv("WINDROW_CUDA_DEVICE") == "" || os.Getenv("WINDROW_BENCH_WIDE") == "" {
		t.Skip("set WINDROW_CUDA_DEVICE and WINDROW_BENCH_WIDE to a type of weights")
	}
	for _, f := range projectFormats {
		if f.dt.String() == os.Getenv("WINDROW_BENCH_WIDE") && f.dt.Quantized() && (f.group == 0 || f.group == 64) {
			testDevice(t).benchWide(os.Stdout, f.dt, 48, 64, 96, 128)
		}
	}
}

// TestProjectionTimes runs the benchmark: on a GPU whole, on the emulated
// device with a tiny model's shapes.
func TestProjectionTimes(t *testing.T) {
	d := testDevice(t)
	if os.Getenv("WINDROW_CUDA_DEVICE") != "" {
		d.benchProjections(os.Stdout)
		return
	}
	var out strings.Builder
	b := &projectTimes{d: d, w: &out, noise: 1 << 20, layers: 1, launches: 2, replays: 1, variants: []tuning{{}, {shared: 100 << 10}}, shapes: []benchShape{
		{"q k v", []int{256, 64, 64}, 256, false}, {"gate up", []int{128, 128}, 256, true}, {"head", []int{300}, 256, false},
	}}
	b.run([]int{8, 16})
	if n := strings.Count(out.String(), "GB/s"); n != 30 || strings.Contains(out.String(), "projections:") {
		t.Errorf("%d lines of figures, want 30:\n%s", n, out.String())
	}
}
