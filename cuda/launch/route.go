package launch

import (
	"fmt"

	"windrow/cuda/driver"
)

// What route.cu holds: experts of a layer, those of a row, and rows of one launch.
const (
	MostExperts = 512
	MostChosen  = 32
	fewRows     = 32

	rehearsedRows      = 2
	fewRouteRows       = 4  // of a block at a time
	fewRouteRowsNormed = 16 // of a routing whose rows are normed on the way
	routeGroups        = 4  // of experts, of a block
)

// Router chooses Chosen experts for a row.
type Router struct {
	Weight      *Weight // [experts, width], floats as stored
	Share       *Weight // [1, width], likewise: how much a row takes of a shared expert; nil: there is none
	Chosen      int
	Renormalise bool
	Joined      bool // the shared expert is listed as one more in passes of few rows (Experts.Joined)
	// Left: the choice of the only row of a pass is left to the experts' launches (Leave).
	Left bool
	// Rounded: its experts round, and have other bits in prompts than in steps. So may their
	// router; else prompts have the bits of steps.
	Rounded bool
	// Wide is that of its experts, whose tiles it lists (Experts.Wide).
	Wide bool
}

// each is how many experts of a row are listed.
func (r *Router) each(decode bool, rows Rows) int { return eachOf(r.Chosen, r.Joined, decode, rows) }

// Normed says how the rows of a routing are normed first, and where normed rows
// go, in the forms that are wanted.
type Normed struct {
	Weight    driver.Ptr // f32 [width]; 0: x is normed
	Eps       float32
	F32, BF16 driver.Ptr
}

// RouteTakesNorm reports whether so many rows can be normed on the way: one, or as many as blocks hold
// at a time.
func (d *Device) RouteTakesNorm(r *Router, bucket int) bool {
	if bucket == 1 || r.Weight.In%4 != 0 {
		return r.Weight.In%4 == 0
	}
	if bucket > fewRouteRowsNormed || r.Weight.In > 4*normThreads {
		return false
	}
	_, grid := d.routeGrid(routeKernel(r.Weight), r.Weight.Out, r.shares(), bucket)
	return Ceil(bucket, fewRouteRows) == grid.y
}

// shares is how many blocks the weight of a shared expert takes.
func (r *Router) shares() int {
	if r.Share != nil {
		return 1
	}
	return 0
}

// mixtures is what mixtures of experts keep on a device: a layer after the other has it.
type mixtures struct {
	route room // the lists of the last Route
	work  room // what experts make
	flow  room // what blocks of few rows make for each other: kernels/experts_few.cuh, FewDown
}

// routeLayout says where what Route leaves lies: bytes into its room, and words into
// the tables where tiles of rows are listed; who chose which expert, of more rows than a few.
type routeLayout struct{ tables, tiles, shares, pairs, logits, chosen, size int }

func routeLayoutOf(experts, chosen, bucket int) routeLayout {
	at := 0
	next := func(words int) int {
		here := at
		at += aligned(4 * words)
		return here
	}
	tiles := 0
	if bucket > fewRows {
		tiles = groupedTilesOf(bucket*(chosen+1), experts+1)
	}
	slots := 4 + 4*(experts+1) // one more for the shared expert
	if bucket <= fewRows {
		slots = 4 + 4*slotsOf(experts, chosen, 1, bucket)
	}
	l := routeLayout{tables: next(slots + 4*tiles), tiles: slots, shares: next(bucket), pairs: next(bucket * (chosen + 1)), logits: next(bucket * (experts + 1))}
	if bucket > fewRows {
		l.chosen = next(Ceil(bucket, 32) * experts)
	}
	l.size = at
	return l
}

// slotRows is how many pairs a slot of the tables has at most where rows are few.
const slotRows = 8

// slotsOf is how many slots few rows have at most, with more experts that have all rows.
func slotsOf(experts, chosen, more, bucket int) int {
	return min(experts, bucket*chosen) + bucket*chosen/slotRows + more*Ceil(bucket, slotRows)
}

// grow makes room for n bytes; changed reports whether its address changed. What it
// held is lost.
func (d *Device) grow(r *room, n int) (changed bool, err error) {
	if n <= r.size {
		return false, nil
	}
	if err := d.Stream.Synchronize(); err != nil {
		return false, err
	}
	if err := d.Context.Free(r.data); err != nil {
		return true, err
	}
	*r = room{}
	if r.data, err = d.Context.Alloc(n); err == nil {
		r.size = n
	}
	return true, err
}

// growCounters is grow of what kernels count in, and leave at zero.
func (d *Device) growCounters(r *room, n int) (changed bool, err error) {
	if changed, err = d.grow(r, n); changed && err == nil {
		err = d.Context.Upload(r.data, make([]byte, r.size))
	}
	return changed, err
}

// FreeMixtures gives back what mixtures of experts keep.
func (d *Device) FreeMixtures() {
	d.Context.Free(d.mixtures.route.data)
	d.Context.Free(d.mixtures.work.data)
	d.Context.Free(d.mixtures.flow.data)
	d.mixtures = mixtures{}
}

// PrepareRoute makes room for the routing of bucket rows; changed reports whether
// addresses changed.
func (d *Device) PrepareRoute(r *Router, bucket int) (changed bool, err error) {
	return d.grow(&d.mixtures.route, routeLayoutOf(r.Weight.Out, r.Chosen, bucket).size)
}

// leaves reports whether the experts' launches choose in place of the router's.
func leaves(left, shared, joined, decode bool, rows Rows) bool {
	return left && rows.Count == 1 && (joined || !shared) && FewForExperts(decode, rows)
}

// routeKernel is the suffix of the kernels that read a router as it is stored.
func routeKernel(w *Weight) string {
	if w.In%8 != 0 {
		return "odd"
	}
	return w.DType.String()
}

// Route writes the routing of the step's rows, [bucket, 2·chosen], by x, f32 [bucket,
// width], and lists by expert for Experts, in a decode pass or another. PrepareRoute has
// made room. A row's bits depend on that row alone. Of the only row of a router whose
// choice is left to the experts these write the routing.
// Rows may be normed first, with the bits of RMSNorm, where RouteTakesNorm says so.
func (d *Device) Route(routing, x driver.Ptr, r *Router, n Normed, step driver.Ptr, decode bool, rows Rows) {
	bucket := rows.Count
	l, at := routeLayoutOf(r.Weight.Out, r.Chosen, bucket), d.mixtures.route.data
	if d.err == nil && l.size > d.mixtures.route.size {
		d.err = fmt.Errorf("cuda: no room was made for the routing of %d rows", bucket)
	}
	share, shareKind := driver.Ptr(0), uint64(0)
	if r.Share != nil {
		share, shareKind = r.Share.Raw, floatKind(r.Share.DType)
	}
	blocks := r.shares()
	args := []uint64{
		uint64(routing), uint64(at) + uint64(l.tables), uint64(at) + uint64(l.pairs), uint64(at) + uint64(l.shares), uint64(at) + uint64(l.logits),
		uint64(x), uint64(r.Weight.Raw), uint64(share), floatKind(r.Weight.DType), shareKind,
		uint64(r.Weight.Out), uint64(r.Weight.In), uint64(r.Chosen), flag(r.Renormalise), uint64(r.each(decode, rows)), uint64(step),
		uint64(n.Weight), f32(n.Eps), uint64(n.F32), uint64(n.BF16),
	}
	shared := 0
	if n.Weight != 0 {
		shared = 4 * r.Weight.In
		if bucket > 1 {
			shared *= fewRouteRows
		}
	}
	name := routeKernel(r.Weight)
	if bucket <= fewRows {
		each, grid := d.routeGrid(name, r.Weight.Out, blocks, bucket)
		args = append(args, uint64(fewRouteRows*Ceil(Ceil(bucket, fewRouteRows), grid.y)))
		if each > 1 {
			name += fmt.Sprintf("_%d", each)
		}
		d.launch(kernel{"route", "route_" + name, shared}, grid, 512, args...)
		if !leaves(r.Left, r.Share != nil, r.Joined, decode, rows) {
			d.launch(kernel{"route", fmt.Sprintf("route_choose_few_%d", heldExperts(r.Weight.Out)), max(bucket, rehearsedRows) * r.Weight.Out}, dim{x: 1}, 512, args...)
		}
		return
	}
	args = append(args, 0)
	logits, grid := kernel{file: "route", name: "route_logits_" + name}, dim{x: Ceil(r.Weight.Out, 16) + blocks, y: Ceil(bucket, 8)}
	if r.Rounded && !FewForExperts(decode, rows) && r.Weight.In%promptInputs == 0 {
		logits, grid = routePrompt(r, bucket)
		grid.x += blocks
	}
	d.launch(logits, grid, 512, args...)
	chosen := uint64(at) + uint64(l.chosen)
	d.launch(kernel{file: "route", name: "route_choose"}, dim{x: Ceil(bucket, 32)}, 1024, append(args, chosen)...)
	slots := r.Weight.Out + r.each(decode, rows) - r.Chosen
	d.launch(kernel{file: "route", name: "route_list"}, dim{x: slots}, 512, append(args, chosen, uint64(d.listedRows(r, decode, rows)), uint64(l.tiles))...)
}

// listedRows is how many rows of an expert a tile has, at most.
func (d *Device) listedRows(r *Router, decode bool, rows Rows) int {
	if tile := d.groupedTile(r.Wide, decode, rows, r.Chosen, r.Weight.Out); tile > 0 {
		return 8 * tile
	}
	return groupedRows
}

// routeGrid is how a few rows of a router go to blocks, one a multiprocessor: of four rows and as few
// groups of `each` experts as that takes, 1, 2 or 4 (of bf16, as published routers are), or else of more rows,
// which a block goes through in turn. blocks are those of a shared expert.
func (d *Device) routeGrid(kernel string, experts, blocks, bucket int) (each int, grid dim) {
	most := 1
	if kernel == "bf16" && bucket > 1 {
		most = 4
	}
	for each = max(1, d.Tuning.routeEach); each <= most; each *= 2 {
		grid = dim{x: Ceil(experts, routeGroups*each) + blocks, y: Ceil(bucket, fewRouteRows)}
		if grid.x*grid.y <= d.Info.SMs || d.Tuning.routeEach > 0 {
			return each, grid
		}
	}
	grid = dim{x: Ceil(experts, routeGroups) + blocks, y: Ceil(bucket, fewRouteRows)}
	for grid.x*grid.y > max(grid.x, d.Info.SMs) {
		grid.y--
	}
	return 1, grid
}

// heldExperts is how many experts a lane of the warp that chooses has.
func heldExperts(experts int) int { return max(4, PowerOfTwo(Ceil(experts, 32))) }

// promptInputs is what the inputs of a router are a multiple of for its rows of prompts
// to be multiplied on tensor cores.
const promptInputs = 32

// routePrompt is the kernel that makes the logits of a prompt's rows, and its grid without
// the shared expert's blocks.
func routePrompt(r *Router, bucket int) (kernel, dim) {
	const rows, experts, line, slices = 64, 32, 40, 4
	return kernel{"route", "route_prompt_" + r.Weight.DType.String(), slices * rows * line * 4}, dim{x: Ceil(r.Weight.Out, experts), y: Ceil(bucket, rows)}
}
