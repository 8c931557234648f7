package emulator_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"windrow/cuda/driver"
	"windrow/emulation"
)

// TestWorkIsLate queues a kernel and a copy: nothing of it may be seen before
// the stream is waited for.
func TestWorkIsLate(t *testing.T) {
	r := newRig(t, false, "faulty")
	out := r.buffer(t, 128)
	host := pinned(t, r, 512)
	for i := range host.Bytes() {
		host.Bytes()[i] = 7
	}
	f, err := r.module.Function("set")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.stream.Launch(f, config(1, 128, 0), []uint64{uint64(out)}); err != nil {
		t.Fatal(err)
	}
	if err := r.stream.CopyOut(host, 0, out, 512); err != nil {
		t.Fatal(err)
	}
	if host.Bytes()[0] != 7 {
		t.Error("a queued copy was done before anything waited")
	}
	if err := r.stream.Synchronize(); err != nil {
		t.Fatal(err)
	}
	if v := binary.LittleEndian.Uint32(host.Bytes()); v != math.Float32bits(1) {
		t.Errorf("after the wait the word is %#x", v)
	}
}

// TestGraphOrder captures copies, a clearing and a kernel, and replays them
// with another source.
func TestGraphOrder(t *testing.T) {
	r := newRig(t, false, "faulty")
	in, out := r.buffer(t, 2048), r.buffer(t, 128)
	host := pinned(t, r, 4*2048+512)
	f, err := r.module.Function("ok_copies")
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(r.stream.BeginCapture())
	must(r.stream.CopyIn(in, host, 0, 4*2048))
	must(r.stream.Launch(f, config(1, 128, 4096), []uint64{uint64(in), uint64(out)}))
	must(r.stream.Zero(out+256, 256))
	must(r.stream.CopyOut(host, 4*2048, out, 512))
	g, err := r.stream.EndCapture()
	must(err)
	defer g.Close()
	if g.Nodes() != 4 {
		t.Errorf("%d nodes, want 4", g.Nodes())
	}
	for _, x := range []float32{1, 2.5} {
		for i := range 2048 {
			binary.LittleEndian.PutUint32(host.Bytes()[i*4:], math.Float32bits(x))
		}
		must(g.Launch(r.stream))
		must(r.stream.Synchronize())
		for i := range 128 {
			want := 4 * x
			if i >= 64 || i < 28 { // cleared; or copied as zeros (ok_copies)
				want = 0
			}
			if got := math.Float32frombits(binary.LittleEndian.Uint32(host.Bytes()[4*2048+i*4:])); got != want {
				t.Fatalf("input %g: word %d is %g, want %g", x, i, got, want)
			}
		}
	}
}

// TestRefusals does what a real driver refuses, and some that it would let
// pass with undefined results.
func TestRefusals(t *testing.T) {
	r := newRig(t, false, "faulty")
	out := r.buffer(t, 128)
	for _, c := range []struct {
		kernel                  string
		blocks, threads, shared int
		want                    string
	}{
		{"set", 1, 64, 0, "written for 128"},
		{"set", 1, 48, 0, "whole warps"},
		{"set", 0, 128, 0, "grid 0x1x1"},
		{"write_past_end", 1, 128, 0, "out of bounds: wrote past the end"},
		{"divergent_barrier", 1, 128, 0, "divergence"},
		{"no_such_kernel", 1, 128, 0, "no kernel no_such_kernel"},
	} {
		err := r.run(c.kernel, c.blocks, c.threads, c.shared, uint64(out))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of %d blocks of %d: %v, want %q", c.kernel, c.blocks, c.threads, err, c.want)
		}
	}

	host := pinned(t, r, 512)
	if err := r.stream.CopyIn(out, host, 0, 512); err != nil {
		t.Fatal(err)
	}
	if err := r.stream.BeginCapture(); err != nil {
		t.Fatal(err)
	}
	if err := r.stream.Synchronize(); err == nil {
		t.Error("Synchronize during a capture: no error")
	}
	g, err := r.stream.EndCapture()
	if err != nil {
		t.Fatal(err)
	}
	g.Close()
}

// TestFreedSource replays a graph whose pinned source is gone.
func TestFreedSource(t *testing.T) {
	r := newRig(t, false, "faulty")
	out := r.buffer(t, 128)
	host, err := r.ctx.HostAlloc(512)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.stream.BeginCapture(); err != nil {
		t.Fatal(err)
	}
	if err := r.stream.CopyIn(out, host, 0, 512); err != nil {
		t.Fatal(err)
	}
	g, err := r.stream.EndCapture()
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if err := host.Close(); err != nil {
		t.Fatal(err)
	}
	if err := g.Launch(r.stream); err != nil {
		t.Fatal(err)
	}
	if err := r.stream.Synchronize(); err == nil || !strings.Contains(err.Error(), "freed") {
		t.Errorf("copy from freed memory: %v", err)
	}
}

// TestCapability loads an image of one architecture on it and on others.
func TestCapability(t *testing.T) {
	hopper := image(t, "faulty", "sm_90a", "ptx80")
	for capability, takes := range map[string]bool{"8.0": false, "9.0": true, "10.0": false} {
		t.Setenv("WINDROW_EMULATED_CC", capability)
		r := newRig(t, false, "faulty") // the image of 8.0 runs everywhere
		if err := r.run("set", 1, 128, 0, uint64(r.buffer(t, 128))); err != nil {
			t.Errorf("%s: %v", capability, err)
		}
		m, err := r.ctx.Load(hopper)
		if (err == nil) != takes {
			t.Errorf("sm_90a on %s: %v", capability, err)
		}
		if err == nil {
			m.Close()
		}
	}
}

// TestPoison runs a faulty kernel in the plain build: what nothing waited for
// must come out as NaN, not by chance right.
func TestPoison(t *testing.T) {
	r := newRig(t, false, "faulty")
	for _, c := range []struct {
		kernel string
		args   []int
	}{{"no_copy_wait", []int{512, 128}}, {"copy_wait_of_older", []int{1024, 128}}, {"uninitialised_shared", []int{128}}} {
		args := r.place(t, c.args)
		if err := r.run(c.kernel, 1, 128, 0, args...); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, w := range r.words(t, driver.Ptr(args[len(args)-1]), 128) {
			found = found || math.IsNaN(float64(math.Float32frombits(w)))
		}
		if !found {
			t.Errorf("%s: no NaN in the output", c.kernel)
		}
	}
}

// TestSeedsAgree runs a correct kernel in several orders of its threads.
func TestSeedsAgree(t *testing.T) {
	r := newRig(t, false, "faulty")
	var first []uint32
	for _, seed := range []string{"0", "1", "2", "3"} {
		t.Setenv("WINDROW_EMULATED_SEED", seed)
		in, out := r.buffer(t, 256), r.buffer(t, 128)
		data := make([]byte, 1024)
		for i := range 256 {
			binary.LittleEndian.PutUint32(data[i*4:], math.Float32bits(float32(i*i%71)/7))
		}
		if err := r.ctx.Upload(in, data); err != nil {
			t.Fatal(err)
		}
		if err := r.run("ok_barriers", 1, 128, 0, uint64(in), uint64(out)); err != nil {
			t.Fatal(err)
		}
		got := r.words(t, out, 128)
		if first == nil {
			first = got
		}
		for i := range got {
			if got[i] != first[i] {
				t.Fatalf("seed %s: word %d is %#x, was %#x", seed, i, got[i], first[i])
			}
		}
	}
}

func pinned(t *testing.T, r *rig, n int) *driver.Pinned {
	t.Helper()
	p, err := r.ctx.HostAlloc(n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// clustered is the beginning of a kernel that runs in clusters, by its name.
var clustered = regexp.MustCompile(`(?s)\.entry \w*(_pair|_c\d+)\(.*?\.minnctapersm \d+`)

// markClusters makes clusters of two blocks of kernels whose names end in _pair, and
// of N of those in _cN.
func markClusters(ptx []byte) []byte {
	return clustered.ReplaceAllFunc(ptx, func(head []byte) []byte {
		blocks := "2"
		if suffix := clustered.FindSubmatch(head)[1]; suffix[1] == 'c' {
			blocks = string(suffix[2:])
		}
		return fmt.Appendf(bytes.Clone(head), "\n.explicitcluster\n.reqnctapercluster %s, 1, 1", blocks)
	})
}

// image translates a file of testdata, as cuda/kernels/build.sh does.
func image(t testing.TB, file, architecture, version string) []byte {
	t.Helper()
	emulation.Available(t, "the emulated CUDA driver")
	out := filepath.Join(t.TempDir(), "image.ptx")
	cmd := exec.Command("clang-22", "-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib", "-std=gnu++20", "-O2", "-S", "-w", "-ffp-contract=on",
		"--cuda-gpu-arch="+architecture, "--cuda-feature=+"+version, "-I../kernels", "-o", out, filepath.Join("testdata", file+".cu"))
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	ptx, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return markClusters(ptx)
}
