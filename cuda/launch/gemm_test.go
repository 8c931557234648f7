package launch

import (
	"errors"
	"testing"

	"windrow/backend"
)

// TestFastestTile checks choices on a device of 132 multiprocessors: few rows
// take tiles that fill it, many the tile with the most products a byte.
func TestFastestTile(t *testing.T) {
	d := &Device{}
	d.Info.SMs, d.Info.SharedPerBlock = 132, 227<<10
	qkv, o, gated := []int{4096, 1024, 1024}, []int{4096}, []int{2 * 12288}
	for _, c := range []struct {
		route    Route
		gated    bool
		rows, in int
		outs     []int
		want     string
	}{
		{RouteOwn, false, 128, 4096, o, "narrow"},
		{RouteOwn, false, 512, 12288, o, "narrow"},
		{RouteOwn, true, 512, 4096, gated, "deep"},
		{RouteOwn, false, 2048, 12288, o, "deep"},
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

// TestPromptOrder: a pass of prompts of any number of rows is multiplied by who
// multiplies PromptRows, in as many parts of the inputs.
func TestPromptOrder(t *testing.T) {
	for _, device := range []struct {
		sms    int
		hopper bool
	}{{132, true}, {114, true}, {78, true}, {132, false}, {6, true}} {
		d := &Device{}
		d.Info.SMs, d.Info.SharedPerBlock = device.sms, 227<<10
		if device.hopper {
			d.prefill.hopper = &hopperGEMM{}
		} else {
			d.prefill.route = RouteOwn
		}
		changed := 0
		for _, c := range []struct {
			in    int
			outs  []int
			gated bool
		}{
			{4096, []int{4096, 1024, 1024}, false}, {4096, []int{4096}, false}, {4096, []int{2 * 12288}, true}, {12288, []int{4096}, false},
			{384, []int{384, 128, 128}, false}, {1024, []int{1024}, false}, {3072, []int{1024}, false}, {2048, []int{64}, false},
		} {
			route, total := d.promptRoute(c.in, false, PromptRows), 0
			for _, out := range c.outs {
				total += Ceil(out, 16)
			}
			whole := d.tile(route, c.gated, c.in, Rows{PromptRows, true}, c.outs...)
			for _, dt := range []backend.DType{backend.Affine4, backend.Q6_K} {
				f, _ := formatOf(dt, 64)
				cut, ok := d.wideShape(f, total, Rows{PromptRows, true}, c.in)
				if !ok {
					t.Fatalf("%d SMs: %d rows of %d by %v: no form", device.sms, PromptRows, c.in, c.outs)
				}
				for rows := 8; rows <= PromptRows; rows += 8 {
					s, ok := d.wideShape(f, total, Rows{rows, true}, c.in)
					if !ok || s.parts != cut.parts {
						t.Errorf("%d SMs: %d rows of %d by %v: %v, of %d %v", device.sms, rows, c.in, c.outs, s, PromptRows, cut)
					}
					if free, _ := d.wideShape(f, total, Rows{Count: rows}, c.in); free.parts != cut.parts {
						changed++
					}
				}
			}
			for rows := 8; rows <= PromptRows; rows += 8 {
				for _, packed := range []bool{false, true} {
					if FewForExperts(false, Rows{rows, true}) {
						t.Fatalf("experts of %d rows are multiplied as in steps", rows)
					}
					if got, want := d.promptRoute(c.in, packed, rows), d.promptRoute(c.in, packed, PromptRows); got != want {
						t.Errorf("%d rows go by %d, %d by %d", rows, got, PromptRows, want)
					}
				}
				if got := d.tile(route, c.gated, c.in, Rows{rows, true}, c.outs...); got.split != whole.split {
					t.Errorf("%d SMs: %d rows of %d by %v: tile %s, of %d rows %s", device.sms, rows, c.in, c.outs, got.name, PromptRows, whole.name)
				}
			}
		}
		if device.hopper && changed == 0 {
			t.Errorf("%d SMs: no choice depends on the rows: nothing is shown", device.sms)
		}
	}
}

// TestWidePairs: pairs of blocks of 256 rows make large products of many rows, of types that they pay for.
func TestWidePairs(t *testing.T) {
	d := &Device{}
	d.Info.SMs, d.Info.SharedPerBlock = 132, 227<<10
	for _, c := range []struct {
		dt            backend.DType
		out, in, rows int
		pair          bool
	}{
		{backend.Affine4, 2 * 12288, 4096, 2048, true}, {backend.Affine4, 4096, 12288, 2048, true}, {backend.Q4_0, 2 * 12288, 4096, 2048, true},
		{backend.Affine4, 2 * 12288, 4096, 8192, true}, {backend.Affine4, 2 * 12288, 4096, 1024, false},
		{backend.Affine4, 2048, 4096, 2048, true}, {backend.Affine4, 2 * 512, 2048, 2048, false}, // o and the shared expert of the 35B
		{backend.Q4_K, 2 * 12288, 4096, 2048, false}, {backend.Affine8, 2 * 12288, 4096, 2048, false},
	} {
		f, _ := formatOf(c.dt, 64)
		if s, ok := d.wideShape(f, c.out/16, Rows{Count: c.rows}, c.in); !ok || s.pair != c.pair {
			t.Errorf("%v, %d outputs, %d inputs, %d rows: %v", c.dt, c.out, c.in, c.rows, s)
		}
	}
}

// promptRoute is the route of a product of prompts' rows.
func (d *Device) promptRoute(in int, packed bool, rows int) Route {
	w := &Weight{Out: 64, In: in}
	if packed {
		w.Packed = &packedMatrix{}
	}
	return d.chosen([]Linear{{Weight: w}}, Rows{rows, true})
}

// TestPrefillRoutes checks who multiplies how many rows.
func TestPrefillRoutes(t *testing.T) {
	plain := []Linear{{Weight: &Weight{Out: 64, In: 64}}}
	of := func(dt backend.DType) []Linear {
		return []Linear{{Weight: &Weight{Out: 64, In: 64, Packed: &packedMatrix{dt: dt}}}}
	}
	packed := of(backend.Affine4)
	odd := []Linear{{Weight: &Weight{Out: 63, In: 64}}}
	hopper, blas := prefill{hopper: &hopperGEMM{}}, &cublas{}
	for _, c := range []struct {
		name string
		d    Device
		w    []Linear
		rows int
		want Route
	}{
		{"hopper", Device{prefill: hopper, blas: blas}, plain, 48, routeHopper},
		{"hopper, few rows", Device{prefill: hopper, blas: blas}, plain, 32, routeDecode},
		{"hopper, few packed", Device{prefill: hopper, blas: blas}, packed, 32, routeDecode},
		{"hopper, packed", Device{prefill: hopper, blas: blas}, packed, 33, routeWide},
		{"hopper, packed", Device{prefill: hopper, blas: blas}, packed, 8192, routeWide},
		{"hopper, many packed", Device{prefill: hopper, blas: blas}, packed, 8193, routeHopper},
		{"hopper, Q4_0", Device{prefill: hopper}, of(backend.Q4_0), 2048, routeWide},
		{"hopper, many Q4_0", Device{prefill: hopper}, of(backend.Q4_0), 2049, routeHopper},
		{"hopper, Q4_K", Device{prefill: hopper}, of(backend.Q4_K), 1024, routeWide},
		{"hopper, many Q4_K", Device{prefill: hopper}, of(backend.Q4_K), 1025, routeHopper},
		{"hopper, Q8_0", Device{prefill: hopper}, of(backend.Q8_0), 512, routeWide},
		{"hopper, many Q8_0", Device{prefill: hopper}, of(backend.Q8_0), 513, routeHopper},
		{"cuBLASLt", Device{blas: blas}, plain, 96, routeBLAS},
		{"own", Device{}, plain, 96, RouteOwn},
		{"own, packed", Device{}, packed, 128, routeDecode},
		{"own, packed", Device{}, packed, 256, RouteOwn},
		{"odd outputs", Device{prefill: hopper}, odd, 4096, routeDecode},
	} {
		if got := c.d.chosen(c.w, Rows{Count: c.rows}); got != c.want {
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
	w := []Linear{{Weight: &Weight{Out: 8, In: 64, Packed: &packedMatrix{}}}}
	d.prefill.route = RouteOwn
	d.PrefillProject([]Target{{}}, 0, w, Rows{Count: 512})
	if err := d.Take(); !errors.Is(err, errUnprepared) {
		t.Errorf("got %v", err)
	}
}
