package cuda

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// TestClusters checks the marks that clang has no attribute for.
func TestClusters(t *testing.T) {
	const image = ".version 8.0\n.visible .entry one(\n.param .u32 a\n)\n.maxntid 384\n.minnctapersm 1\n{\n}\n" +
		".visible .entry two_pair(\n.param .u32 a\n)\n.maxntid 384\n.minnctapersm 1 // @two\n{\n}\n"
	got := string(withClusters([]byte(image)))
	want := strings.Replace(image, ".minnctapersm 1 // @two", ".minnctapersm 1\n.explicitcluster\n.reqnctapercluster 2, 1, 1 // @two", 1)
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// TestFastestTile checks that few rows take tiles that fill the device.
func TestFastestTile(t *testing.T) {
	d := &device{}
	d.info.SMs, d.info.SharedPerBlock = 132, 227<<10
	for _, c := range []struct {
		tiles []gemmTile
		rows  int
		outs  []int
		want  string
	}{
		{d.gemmTiles(), 128, []int{4096}, "narrow"},
		{d.gemmTiles(), 2048, []int{12288}, "deep"},
		{hopperTiles, 512, []int{4096}, "split"},
		{hopperTiles, 2048, []int{4096, 1024, 1024}, "pair"},
		{hopperGatedTiles, 128, []int{24576}, "wide"},
		{hopperTiles, 256, []int{1024, 128}, "split"},
	} {
		if got := d.fastest(c.tiles, c.rows, c.outs...); got.name != c.want {
			t.Errorf("%d rows by %v: tile %s, want %s", c.rows, c.outs, got.name, c.want)
		}
	}
}

// TestPrefillBLAS adds cuBLASLt, emulated, to the routes of the self-test.
func TestPrefillBLAS(t *testing.T) {
	if err := testPrefillRoutes(blasDevice(t)); err != nil {
		t.Fatal(err)
	}
}

// TestPrefillUnprepared checks that a product without its scratch is refused.
func TestPrefillUnprepared(t *testing.T) {
	d := testDevice(t)
	w := []linear{{w: &matrix{out: 8, in: 64, packed: &packedMatrix{}}}}
	d.prefill.route = routeOwn
	d.prefillProject([]target{{}}, 0, w, 512)
	if err := d.take(); !errors.Is(err, errUnprepared) {
		t.Errorf("got %v", err)
	}
}

// TestBenchGEMM prints what benchGEMM measures, on the device that
// WINDROW_CUDA_DEVICE names. WINDROW_BENCH_GEMM is "all", or parts of names of variants, separated by commas.
func TestBenchGEMM(t *testing.T) {
	names := os.Getenv("WINDROW_BENCH_GEMM")
	if names == "" {
		t.Skip("a benchmark: set WINDROW_BENCH_GEMM")
	}
	d := testDevice(t)
	d.findBLAS()
	defer func() {
		if err := d.blas.close(); err != nil {
			t.Error(err)
		}
		d.blas = nil
	}()
	var only []string
	if names != "all" {
		only = strings.Split(names, ",")
	}
	if err := d.benchGEMM(os.Stdout, []int{128, 256, 512, 2048, 8192}, only...); err != nil {
		t.Fatal(err)
	}
}
