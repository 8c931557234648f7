package launch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/cuda/driver"
	"windrow/cuda/emulator"
	"windrow/cuda/kernels"
)

// TestMark: every kernel can be changed so that it tells when it runs, at each of its ends
// and around each wait, and is otherwise as it was. WINDROW_KEEP names a folder for what
// comes out, which a translator of PTX can then be asked about.
func TestMark(t *testing.T) {
	for _, major := range []int{8, 9} {
		for _, file := range kernels.Files(major, 0) {
			names, err := kernels.Names(file, major, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				ptx, err := kernels.PTX(file, name, major, 0)
				if err != nil {
					t.Fatal(err)
				}
				line := &timeline{heads: 0x7f0000001000, count: 132}
				marked, err := line.mark(name, ptx)
				if err != nil {
					t.Fatal(err)
				}
				ends, waits := bytes.Count(ptx, []byte("\tret;")), bytes.Count(ptx, kernelWaits)
				if got := bytes.Count(marked, []byte("\nTOLD")); got != ends || ends == 0 {
					t.Errorf("%s: %d of %d ends tell", name, got, ends)
				}
				if got := bytes.Count(marked, []byte("mov.u32 %told2, %globaltimer_lo;")); got != waits {
					t.Errorf("%s: %d of %d waits tell", name, got, waits)
				}
				var rest []string // without what was added, line by line
				left := strings.Split(string(ptx), "\n")
				for _, l := range strings.Split(string(marked), "\n") {
					if len(left) > 0 && l == left[0] {
						left = left[1:]
					} else {
						rest = append(rest, l)
					}
				}
				if len(left) > 0 {
					t.Errorf("%s: %q is gone", name, left[0])
				}
				for _, l := range rest {
					if l != "" && !strings.Contains(l, "%told") && !strings.Contains(l, "%where") && !strings.Contains(l, "%quiet") && !strings.Contains(l, "TOLD") {
						t.Errorf("%s: %q was added", name, l)
					}
				}
				if folder := os.Getenv("WINDROW_KEEP"); folder != "" {
					if err := os.WriteFile(fmt.Sprintf("%s/%s.%d.ptx", folder, name, major), marked, 0o666); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	if _, err := (&timeline{}).mark("x", []byte(".visible .entry x(\n)\n{\n\ttrap;\n}\n")); err == nil {
		t.Error("a kernel without an end was changed")
	}
	if _, err := (&timeline{}).mark("x", []byte(".visible .entry x(\n)\n")); err == nil {
		t.Error("a kernel without a body was changed")
	}
}

// TestLaunches: what warps tell is sorted into launches, whatever multiprocessor they ran on
// and when the clock's low half begins anew.
func TestLaunches(t *testing.T) {
	const zero = 1<<32 - 500 // the first warp begins here
	line := &timeline{names: []string{"a", "b"}, count: 2}
	lists := make([][]byte, 2)
	tell := func(list int, words ...uint32) {
		for _, w := range append(words, 0) {
			lists[list] = binary.LittleEndian.AppendUint32(lists[list], w)
		}
	}
	at := func(ns uint32) uint32 { return zero + ns }
	// Two launches of b, of two blocks of 40 threads, around one of a, which waits for nobody.
	for i, warp := range [][4]uint32{{0, 10, 20, 400}, {5, 15, 25, 300}, {5, 15, 22, 310}, {7, 30, 40, 320}} {
		tell(i%2, at(warp[0]), at(warp[1]), at(warp[2]), at(warp[3]), 1, 2, 40)
	}
	for i, warp := range [][4]uint32{{600, 900, 950, 1400}, {610, 910, 960, 1300}, {620, 920, 970, 1350}, {800, 1000, 1010, 1500}} {
		tell((i+1)%2, at(warp[0]), at(warp[1]), at(warp[2]), at(warp[3]), 1, 2, 40)
	}
	tell(1, at(450), 0, 0, at(700), 0, 1, 32)
	got, err := line.launches(lists)
	if err != nil {
		t.Fatal(err)
	}
	ns := func(x float64) int { return int(x*1e9 + 0.5) }
	var text strings.Builder
	for _, l := range got {
		fmt.Fprintln(&text, l.Name, l.Blocks, l.Threads, ns(l.Begun), ns(l.Half), ns(l.Ready), ns(l.Released), ns(l.First), ns(l.Middle), ns(l.Last))
	}
	if want := "b 2 40 0 5 30 20 300 320 400\na 1 32 450 450 450 450 700 700 700\nb 2 40 600 620 1000 950 1300 1400 1500\n"; text.String() != want {
		t.Errorf("got\n%s, want\n%s", text.String(), want)
	}

	tell(0, at(1600), at(1600), at(1600), at(1700), 1, 2, 40)
	if _, err := line.launches(lists); err == nil || !strings.Contains(err.Error(), "9 warps") {
		t.Errorf("a warp too many: %v", err)
	}
}

// TestTimeline: a device whose kernels tell when they run computes what it did; emulated
// kernels, which are not made of PTX, tell nothing, and that is said.
func TestTimeline(t *testing.T) {
	d := openDevice(t, driver.Options{Library: emulator.Driver(t)}, 0)
	if _, err := d.Timeline(func() error { return nil }); err == nil {
		t.Error("nothing tells when it runs, and no error")
	}
	if err := d.WatchKernels(); err != nil {
		t.Fatal(err)
	}
	defer d.forgetKernels()
	ahead, err := d.KernelsOf("route")
	if err != nil {
		t.Fatal(err)
	}
	d.Preload(ahead, 0)
	if _, err := d.Await(ahead); err != nil {
		t.Fatal(err)
	}
	if n := len(d.timeline.names); n != len(ahead) {
		t.Errorf("of %d kernels that were loaded ahead %d tell", len(ahead), n)
	}
	ran := false
	list, err := d.Timeline(func() error {
		ran = true
		return checkRowBits(d, backend.Affine4, 64)
	})
	if !ran || (err == nil) != (len(list) > 0) {
		t.Errorf("ran: %t; %d launches, %v", ran, len(list), err)
	}
	if err != nil && !strings.Contains(err.Error(), "no kernel told") {
		t.Error(err)
	}
}
