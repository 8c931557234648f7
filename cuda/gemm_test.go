package cuda

import (
	"errors"
	"testing"
)

// TestFastestTile checks choices on a device of 132 multiprocessors: few rows
// take tiles that fill it, many the tile with the most products a byte.
func TestFastestTile(t *testing.T) {
	d := &device{}
	d.info.SMs, d.info.SharedPerBlock = 132, 227<<10
	qkv, o, gated := []int{4096, 1024, 1024}, []int{4096}, []int{2 * 12288}
	for _, c := range []struct {
		route    gemmRoute
		gated    bool
		rows, in int
		outs     []int
		want     string
	}{
		{routeOwn, false, 128, 4096, o, "narrow"},
		{routeOwn, false, 512, 12288, o, "narrow"},
		{routeOwn, true, 512, 4096, gated, "deep"},
		{routeOwn, false, 2048, 12288, o, "deep"},
		{routeHopper, false, 128, 12288, o, "split"},
		{routeHopper, false, 128, 512, o, "narrow"},
		{routeHopper, false, 512, 4096, o, "narrow"},
		{routeHopper, false, 512, 4096, qkv, "pair"},
		{routeHopper, true, 256, 4096, gated, "narrow"},
		{routeHopper, true, 512, 4096, gated, "pair"},
		{routeHopper, false, 640, 4096, qkv, "wide"},
		{routeHopper, false, 2048, 4096, qkv, "pair"},
		{routeHopper, false, 8192, 12288, o, "pair"},
	} {
		if got := d.fastest(d.tiles(c.route, c.gated, c.in), c.in, c.rows, c.outs...); got.name != c.want {
			t.Errorf("%d rows by %v of %d: tile %s, want %s", c.rows, c.outs, c.in, got.name, c.want)
		}
	}
}

// TestPrefillRoutes checks who multiplies how many rows.
func TestPrefillRoutes(t *testing.T) {
	plain := []linear{{w: &matrix{out: 64, in: 64}}}
	packed := []linear{{w: &matrix{out: 64, in: 64, packed: &packedMatrix{}}}}
	odd := []linear{{w: &matrix{out: 63, in: 64}}}
	hopper, blas := prefill{hopper: &hopperGEMM{}}, &cublas{}
	for _, c := range []struct {
		name string
		d    device
		w    []linear
		rows int
		want gemmRoute
	}{
		{"hopper", device{prefill: hopper, blas: blas}, plain, 48, routeHopper},
		{"hopper, few rows", device{prefill: hopper, blas: blas}, plain, 32, routeDecode},
		{"hopper, few packed", device{prefill: hopper, blas: blas}, packed, 32, routeDecode},
		{"hopper, packed", device{prefill: hopper, blas: blas}, packed, 33, routeWide},
		{"hopper, packed", device{prefill: hopper, blas: blas}, packed, 1024, routeWide},
		{"hopper, many packed", device{prefill: hopper, blas: blas}, packed, 1025, routeHopper},
		{"cuBLASLt", device{blas: blas}, plain, 96, routeBLAS},
		{"own", device{}, plain, 96, routeOwn},
		{"own, packed", device{}, packed, 128, routeDecode},
		{"own, packed", device{}, packed, 256, routeOwn},
		{"odd outputs", device{prefill: hopper}, odd, 4096, routeDecode},
	} {
		if got := c.d.chosen(c.w, c.rows); got != c.want {
			t.Errorf("%s: %d rows go by %d, want %d", c.name, c.rows, got, c.want)
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
