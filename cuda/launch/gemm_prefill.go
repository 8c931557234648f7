package launch

import (
	"errors"
	"slices"

	"windrow/backend"
	"windrow/cuda/driver"
)

// prefill is what prefill projections keep on a device.
type prefill struct {
	scratch driver.Ptr // weights as bf16, and the halves of gated products
	size    int
	route   Route // forced by tests and benchmarks
	hopper  *hopperGEMM
	parts   wideParts
	tried   bool // what can multiply has been looked for
}

// Route is who multiplies.
type Route int

const (
	routeChosen Route = iota // by rows, and by what the device has
	routeBLAS
	routeHopper
	RouteOwn
	routeDecode
	routeWide // kernels/wide.cuh
)

// decodeRoute is the rows up to which the decode kernels are taken instead of a
// route: for bf16 weights, which they read once, and for packed ones, which
// they read as they are; from there up to wideRows kernels/wide.cuh is taken for
// packed ones. All products of the 8B model on an H100, in ms, before kernels/sliced_hopper.cu,
// which makes up to 128 rows of bf16 on the hopper route with the bits of gemm_hopper.cu:
//
//	rows             64    128   256   512   1024
//	decode, bf16     6.9   12.3
//	decode, 4 bits   4.5   7.4   14.8
//	wide, 4 bits     2.6   3.4   5.7   10.1  20.1
//	hopper           6.5   6.1   7.2   10.9  19.5 (decoding 4 bits: 6.6 more)
//	cuBLASLt               6.6
//	own                    13.4
//
// Own kernels on other devices are taken to stand to each other as stream.cuh and
// gemm.cu do there: 4 bits 7.8 and 15.2 ms.
var decodeRoute = map[Route]struct{ plain, packed int }{
	routeHopper: {plain: 32, packed: 32},
	routeBLAS:   {plain: 64, packed: 64},
	RouteOwn:    {plain: 64, packed: 128},
}

// wideRows is how many rows go by kernels/wide.cuh where there is gemm_hopper.cu. Each 128
// or 256 of them decode all weights, which is as much work as a type's decoding is. Thousands
// of tokens a second of whole prompts by wide.cuh, and where weights are decoded first, H200s:
//
//	                          768          1,024        2,048        4,096        8,192 rows
//	8B, affine 4 bits, pairs                            42.6         40.8 (39.1)  37.3 (37.2)
//	4B, Q4_0, pairs                                     62.5 (61.5)
//	4B, Q4_K, pairs                                     60.9 (61.3)
//	4B, affine 8 bits, pairs                            60.3 (61.0)
//	4B, Q8_0, pairs                                     57.0 (60.9)
//	4B, Q6_K, pairs                                     56.9 (61.2)
//	blocks of 128 rows, other days:
//	8B, affine 4 bits                                   38.5 (37.1)               35.2 (36.0)
//	4B, Q4_0                  54.7 (51.3)  54.9 (51.6)  54.4 (56.9)
//	4B, Q4_K                  53.6 (50.8)  53.2 (51.0)  53.0 (56.8)
//	4B, affine 8 bits         53.3 (51.1)  53.4 (51.2)  52.8 (57.0)
//	4B, Q8_0                  48.8 (50.6)  48.7 (51.1)  49.0 (56.5)
func wideRows(dt backend.DType) int {
	switch dt {
	case backend.Affine4:
		return 8192
	case backend.Q4_0:
		return 2048
	case backend.Affine8, backend.Q4_K:
		return 1024
	}
	return 512
}

// PromptRows is the largest pass of prompts alone whose rows have the bits that they have
// in any other such pass. It is what a prompt of many is cut into, so that long prompts
// take the kernels that are the fastest for them.
const PromptRows = 512

// Rows are those of a prefill projection.
type Rows struct {
	Count int
	// Prompt makes a row's bits the same among any number of rows up to PromptRows:
	// where an order of sums depends on the rows, it is that of PromptRows.
	Prompt bool
}

// ordered is the number of rows that the order of sums is chosen by.
func (r Rows) ordered() int {
	if r.Prompt && r.Count <= PromptRows {
		return PromptRows
	}
	return r.Count
}

// PromptsAlike reports whether Rows.Prompt is kept: by own kernels, whose order of sums
// is chosen here. cuBLASLt chooses by itself; and where it, or gemm.cu, takes over from
// the decode kernels, few rows would wait for all weights to be decoded to bf16.
func (d *Device) PromptsAlike() bool {
	switch d.prefill.route {
	case RouteOwn:
		return true
	case routeChosen:
		return d.openHopper() != nil
	}
	return false
}

// errUnprepared says that a launcher has no scratch: PrepareGEMM was not called
// for these weights and rows.
var errUnprepared = errors.New("cuda: no room was made for a prefill projection")

// gemmAlign keeps what lies in the scratch aligned for every kernel.
const gemmAlign = 256

func aligned(n int) int { return (n + gemmAlign - 1) &^ (gemmAlign - 1) }

// WithoutBLAS makes prefill projections take the built-in kernels.
func (d *Device) WithoutBLAS() { d.prefill.tried, d.prefill.hopper = true, d.openHopper() }

// UseRoute forces who multiplies, for tests and benchmarks.
func (d *Device) UseRoute(r Route) { d.prefill.route = r }

// PrepareGEMM makes room for the prefill projection of some weights (those
// past the last may be nil) by that many rows; changed reports whether addresses
// changed.
func (d *Device) PrepareGEMM(w []Linear, rows Rows) (changed bool, err error) {
	if !d.prefill.tried {
		d.prefill.tried = true
		if d.prefill.hopper = d.openHopper(); d.prefill.hopper == nil && d.blas == nil {
			d.findBLAS()
		}
	}
	used := make([]Linear, 0, 3)
	for _, l := range w {
		if l.Weight != nil {
			used = append(used, l)
		}
	}
	for i := range used {
		if d.chosen(used[i:i+1], rows) == routeWide {
			if err := d.prepareWide(); err != nil {
				return false, err
			}
		}
	}
	need := d.scratchOf(used, rows)
	if need <= d.prefill.size {
		return false, nil
	}
	if d.prefill.scratch != 0 {
		if err := d.Stream.Synchronize(); err != nil {
			return false, err
		}
		if err := d.Context.Free(d.prefill.scratch); err != nil {
			return true, err
		}
		d.prefill.scratch, d.prefill.size = 0, 0
	}
	if d.prefill.scratch, err = d.Context.Alloc(need); err == nil {
		d.prefill.size = need
	}
	return true, err
}

// scratchOf is how many bytes of scratch a product needs: for weights that are
// decoded first, and for the halves of a gated one that cuBLASLt multiplies.
func (d *Device) scratchOf(w []Linear, rows Rows) (need int) {
	if len(w) == 0 {
		return 0
	}
	route := d.chosen(w, rows)
	if route == routeDecode || route == routeWide {
		return 0
	}
	for _, l := range w {
		if l.Weight.Packed != nil {
			need += aligned(2 * l.Weight.Out * l.Weight.In)
		}
		if route == routeBLAS {
			need += aligned(2 * l.Weight.Out * rows.Count)
		}
	}
	return need
}

// prepared reports whether there is scratch for a product; the device keeps the
// error where there is not.
func (d *Device) prepared(w []Linear, rows Rows) bool {
	if d.err == nil && d.scratchOf(w, rows) > d.prefill.size {
		d.err = errUnprepared
	}
	return d.err == nil
}

// free gives the memory back.
func (p *prefill) free(ctx *driver.Context) {
	if p.scratch != 0 {
		ctx.Free(p.scratch)
	}
	p.parts.free(ctx)
	if p.hopper != nil {
		p.hopper.free(ctx)
	}
	*p = prefill{}
}

// part returns a weight's rows as bf16: as stored, or decoded into the
// scratch from offset *at on.
func (d *Device) part(l Linear, at *int) gemmPart {
	p := gemmPart{w: l.Weight.Raw, bias: l.Bias, out: l.Weight.Out}
	if l.Weight.Packed != nil {
		p.w = d.prefill.scratch + driver.Ptr(*at)
		*at += aligned(2 * l.Weight.Out * l.Weight.In)
		d.dequantise(p.w, l.Weight)
	}
	return p
}

// chosen is the route of a product with weights of one format. Only the decode
// kernels take numbers of outputs that are no multiple of 8.
func (d *Device) chosen(w []Linear, by Rows) Route {
	rows := by.ordered()
	for _, l := range w {
		if l.Weight.Out%8 != 0 || l.Weight.In%8 != 0 {
			return routeDecode
		}
	}
	if d.prefill.route != routeChosen {
		return d.prefill.route
	}
	route := RouteOwn
	switch {
	case d.prefill.hopper != nil:
		route = routeHopper
	case d.blas != nil:
		route = routeBLAS
	}
	upTo := decodeRoute[route]
	switch packed := w[0].Weight.Packed != nil; {
	case packed && rows <= upTo.packed, !packed && rows <= upTo.plain:
		return routeDecode
	case packed && route == routeHopper && rows <= wideRows(w[0].Weight.Packed.dt):
		return routeWide
	}
	return route
}

// tiles lists the tiles of a route for a product of in inputs.
func (d *Device) tiles(route Route, gated bool, in int) []gemmTile {
	switch {
	case route != routeHopper:
		return d.gemmTiles()
	case gated:
		return hopperGatedTiles
	case in < splitInputs:
		return hopperTiles[:len(hopperTiles)-1]
	}
	return hopperTiles
}

// tile is the tile of a product: the fastest, of those with the order of sums that is
// wanted.
func (d *Device) tile(route Route, gated bool, in int, rows Rows, outs ...int) gemmTile {
	tiles := d.tiles(route, gated, in)
	if rows.ordered() != rows.Count {
		order := d.fastest(tiles, in, rows.ordered(), outs...)
		tiles = slices.DeleteFunc(slices.Clone(tiles), func(t gemmTile) bool { return t.split != order.split })
	}
	return d.fastest(tiles, in, rows.Count, outs...)
}

// PrefillProject enqueues up to three projections of one format that share x
// (bf16 [rows, in]), as many targets as weights. PrepareGEMM has made room.
func (d *Device) PrefillProject(dst []Target, x driver.Ptr, w []Linear, rows Rows) {
	route := d.chosen(w, rows)
	switch route {
	case routeDecode:
		d.Project(dst, x, w, rows.Count)
		return
	case routeWide:
		d.wide(dst, x, w, false, rows)
		return
	}
	if !d.prepared(w, rows) {
		return
	}
	var store [3]gemmPart
	parts, at, in := store[:len(w)], 0, w[0].Weight.In
	var outs [3]int
	for i, l := range w {
		parts[i] = d.part(l, &at)
		parts[i].dst = dst[i]
		outs[i] = l.Weight.Out
	}
	if route != routeBLAS {
		if t := d.tile(route, false, in, rows, outs[:]...); !d.prefillSliced(t, dst, x, w, false, rows.Count) {
			d.gemm(t, x, parts, in, rows.Count)
		}
		return
	}
	for _, p := range parts {
		d.blasProject(p, x, in, rows.Count)
	}
}

// PrefillGated enqueues dst[rows, out] = silu(x · gateᵀ) * (x · upᵀ).
func (d *Device) PrefillGated(dst Target, x driver.Ptr, gate, up Linear, rows Rows) {
	route := d.chosen([]Linear{gate, up}, rows)
	switch route {
	case routeDecode:
		d.ProjectGated(dst, x, gate, up, rows.Count)
		return
	case routeWide:
		d.wide([]Target{dst}, x, []Linear{gate, up}, true, rows)
		return
	}
	if !d.prepared([]Linear{gate, up}, rows) {
		return
	}
	at, in := 0, gate.Weight.In
	g, u := d.part(gate, &at), d.part(up, &at)
	if route != routeBLAS {
		if t := d.tile(route, true, in, rows, 2*g.out); !d.prefillSliced(t, []Target{dst}, x, []Linear{gate, up}, true, rows.Count) {
			d.gemmGated(t, dst, x, g, u, in, rows.Count)
		}
		return
	}
	half := aligned(2 * g.out * rows.Count)
	g.dst.BF16 = d.prefill.scratch + driver.Ptr(at)
	u.dst.BF16 = g.dst.BF16 + driver.Ptr(half)
	d.blasProject(g, x, in, rows.Count)
	d.blasProject(u, x, in, rows.Count)
	d.GatedAct(dst.F32, dst.BF16, g.dst.BF16, u.dst.BF16, true, rows.Count*g.out)
}

// blasProject is one product by cuBLASLt.
func (d *Device) blasProject(p gemmPart, x driver.Ptr, in, rows int) {
	to, f32 := p.dst.F32, true
	if to == 0 {
		to, f32 = p.dst.BF16, false
	}
	d.enqueue(func() error {
		return d.blas.matmul(d.Stream, to, f32, p.w, x, rows, p.out, in, p.dst.Add)
	})
	if p.bias != 0 || (f32 && p.dst.BF16 != 0) {
		d.gemmFinish(p.dst, p.bias, p.out, rows)
	}
}

// gemmFinish adds a bias to rows that are there, and writes the bf16 form of
// f32 rows where both are wanted.
func (d *Device) gemmFinish(dst Target, bias driver.Ptr, out, rows int) {
	n := rows * out
	d.launch(kernel{"gemm", "gemm_finish", 0}, dim{x: (n/8 + 255) / 256}, 256, uint64(dst.F32), uint64(dst.BF16), uint64(bias), uint64(out), uint64(n))
}
