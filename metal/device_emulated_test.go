package metal

import (
	"runtime"
	"strings"
	"testing"

	"windrow/metal/emulator"
)

// swapSource copies x[0:32] to x[n:n+32], reversed by way of threadgroup memory.
const swapSource = `#include <metal_stdlib>
using namespace metal;
struct SwapParams { uint n; };
kernel void swap(device float* x [[buffer(0)]], constant SwapParams& p [[buffer(1)]],
                 threadgroup float* t [[threadgroup(0)]], uint i [[thread_position_in_threadgroup]]) {
  t[i] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  x[p.n + i] = t[31 - i];
}
`

// TestEmulatedFaults: what a launcher does wrong comes back from encode, with
// the kernel's name, through the driver and the emulator.
func TestEmulatedFaults(t *testing.T) {
	if runtime.GOOS == "darwin" {
		t.Skip("faults that a GPU does not report")
	}
	type swapParams struct{ n uint32 }
	for _, c := range []struct {
		name, words string
		plain       bool // the plain build finds it too
		n           uint32
		change      func(d *dispatch)
	}{
		{"right", "", true, 32, func(*dispatch) {}},
		{"right at an offset", "", true, 32, func(d *dispatch) { d.args[0].view.offset = 4 }},
		{"writes past its buffer", "swap", true, 33, func(*dispatch) {}},
		{"writes past its buffer at an offset", "swap", true, 33, func(d *dispatch) { d.args[0].view.offset = 4 }},
		{"little threadgroup memory", "swap", false, 32, func(d *dispatch) { d.threadgroup = 112 }},
		{"too many threads for it", "swap", false, 31, func(d *dispatch) { d.threads[0] = 33 }},
	} {
		for _, build := range []emulator.Build{emulator.Plain, emulator.Checked} {
			if build == emulator.Plain && !c.plain {
				continue
			}
			t.Run(c.name+"/"+build.String(), func(t *testing.T) {
				d := testDevice(t, build, 1)
				d.source = func(string) (string, error) { return swapSource, nil }
				p := swapParams{n: c.n}
				launch := dispatch{
					file: "test", kernel: "swap", args: []arg{{}, params(&p)}, threadgroup: 128,
					groups: size3{1, 1, 1}, threads: size3{32, 1, 1},
				}
				c.change(&launch)
				x := &launch.args[0].view
				x.buffer = testAlloc(t, d, x.offset+256, elemF32).buffer
				x.elem = elemF32
				for i := range 32 {
					f32s(*x)[i] = float32(i + 1)
				}
				err := d.encode(func(e encoder) { e.dispatch(launch) })
				switch {
				case c.words != "":
					if err == nil || !strings.Contains(err.Error(), c.words) || strings.Contains(err.Error(), "\n") {
						t.Errorf("error %v, want one line with %q", err, c.words)
					}
				case err != nil:
					t.Error(err)
				case f32s(*x)[63] != 1:
					t.Errorf("the last element is %v", f32s(*x)[63])
				}
			})
		}
	}
}
