package launch

import (
	"fmt"

	"windrow/cuda/driver"
)

// ExpertList is one matrix of each expert of a layer, all of one form.
type ExpertList struct {
	Of    *Weight    // any of them: type, shape and form are those of all
	Where driver.Ptr // u64 [3][Count+More]: addresses of data, and of scales and biases as stored
	Count int
	More  int // 1: that of the shared expert comes behind them
}

// address is where the addresses of part i (data, scales, biases) lie.
func (l *ExpertList) address(i int) uint64 { return uint64(l.Where) + uint64(8*i*(l.Count+l.More)) }

// Experts are the matrices of a mixture of experts.
type Experts struct {
	Gate, Up, Down ExpertList
	// Shared is the gate, up and down of an expert that every row has; nil: there is none.
	Shared []Linear
	Chosen int
	// Joined: the shared expert is in the lists, and runs with the others where rows are
	// few. Its router says so, too.
	Joined bool
	// Router is that of a mixture whose launches choose the only row's experts by themselves
	// (Leave); nil: it chooses.
	Router *Router
}

// Leave has the experts' launches choose the experts of a pass of one row, where they can:
// each finds what it reads by the router's logits, so that none waits for lists.
func (e *Experts) Leave(r *Router) {
	if r.Left = e.Gate.Of.Fast() && e.Down.Of.Fast() && e.joinParts() != 0; r.Left {
		e.Router = r
	}
}

// Joins reports whether a shared expert is like the others, gate, up and down, so that
// it can be listed as one more.
func Joins(shared []Linear, gate, up, down *Weight) bool {
	for i, w := range []*Weight{gate, up, down} {
		if s := shared[i].Weight; !w.Fast() || !s.Fast() || s.DType != w.DType || s.Group != w.Group || s.Out != w.Out || s.In != w.In || shared[i].Bias != 0 {
			return false
		}
	}
	return true
}

// each is the rows that experts make of a row.
func (e *Experts) each(decode bool, rows Rows) int { return eachOf(e.Chosen, e.Joined, decode, rows) }

// eachOf is how many experts a row has, a joined shared one with them.
func eachOf(chosen int, joined, decode bool, rows Rows) int {
	if joined && FewForExperts(decode, rows) {
		return chosen + 1
	}
	return chosen
}

func (e *Experts) width() int { return e.Down.Of.Out }
func (e *Experts) inner() int { return e.Gate.Of.Out }

// Reads says in which forms its inputs are read.
func (e *Experts) Reads() (f32, bf16 bool) {
	list := []*Weight{e.Gate.Of}
	if e.Shared != nil {
		list = append(list, e.Shared[0].Weight, e.Shared[1].Weight)
	}
	for _, w := range list {
		f32, bf16 = f32 || !w.Fast(), bf16 || w.Fast()
	}
	return f32, bf16
}

// expertsLayout says where what experts make lies: bytes into its room.
type expertsLayout struct {
	inner32, inner16   int // silu(gate·x) ⊙ up·x of each pair
	made               int // down of that, f32
	shared32, shared16 int // of the shared expert
	up32, sharedMade   int
	size               int
}

func (e *Experts) layout(decode bool, rows Rows) (l expertsLayout) {
	bucket := rows.Count
	each := e.each(decode, rows)
	pairs := bucket * each
	l.inner32, l.inner16 = l.next(4*pairs*e.inner()), l.next(2*pairs*e.inner())
	if bucket > fewRows || !e.Down.Of.Fast() || e.joinParts() == 0 {
		l.made = l.next(4 * pairs * e.width())
	}
	if s := e.Shared; s != nil && each == e.Chosen {
		l.share(s, bucket)
	}
	return l
}

// share makes room for a shared expert's rows.
func (l *expertsLayout) share(w []Linear, bucket int) {
	n := bucket * w[0].Weight.Out
	l.shared32, l.shared16, l.up32 = l.next(4*n), l.next(2*n), l.next(4*n)
	l.sharedMade = l.next(4 * bucket * w[2].Weight.Out)
}

// next is room for n bytes more.
func (l *expertsLayout) next(n int) int {
	here := l.size
	l.size += aligned(n)
	return here
}

// decodeExperts are the rows up to which the kernels of decode passes multiply a
// prefill pass, too: an expert has few of them.
const decodeExperts = 128

// FewForExperts reports whether experts run as in a decode pass: which rows of prompts
// whose bits are to be alike do not, however few.
func FewForExperts(decode bool, rows Rows) bool { return decode || rows.ordered() <= decodeExperts }

// PrepareExperts makes room for the experts of that many rows; changed reports whether
// addresses changed.
func (d *Device) PrepareExperts(e *Experts, decode bool, rows Rows) (changed bool, err error) {
	changed, err = d.grow(&d.mixtures.work, e.layout(decode, rows).size)
	if err == nil {
		var also bool
		also, err = d.growFlow(e)
		changed = changed || also
	}
	if err == nil && e.Shared != nil && !FewForExperts(decode, rows) {
		var also bool
		also, err = d.prepareSharedGEMM(e.Shared, rows)
		changed = changed || also
	}
	return changed, err
}

// prepareSharedGEMM makes room for a shared expert's products of many rows.
func (d *Device) prepareSharedGEMM(shared []Linear, rows Rows) (changed bool, err error) {
	for _, w := range [][]Linear{shared[:2], shared[2:]} {
		if !w[0].Weight.Fast() || err != nil {
			continue
		}
		var also bool
		also, err = d.PrepareGEMM(w, rows)
		changed = changed || also
	}
	return changed, err
}

// gatedParts and downParts are how many parts a strip's inputs are cut into: by shape
// alone, since the order of sums depends on it.
func gatedParts(f format, in int) int { return min(4, PowerOfTwo(Ceil(in, f.inputs)+1)/2) }
func downParts(f format, in int) int  { return min(2, Ceil(in, f.inputs)) }

// joinParts is downParts where down and the sum of few rows are one launch, else 0.
func (e *Experts) joinParts() int {
	f := e.Down.Of.format()
	parts := downParts(f, e.Down.Of.In)
	if fewRows*e.each(true, Rows{Count: fewRows})*parts*16*4 > 64<<10 {
		return 0
	}
	return parts
}

// expertStages is the depth of the warps' rings: all that a warp reads where it is
// little, at most 7 granules, in a limit of shared memory.
func expertStages(perWarp, bytes, limit int) int { return max(1, min(perWarp, 7, limit/bytes)) }

// heldRows is how many rows of an expert the rings of its kernels hold, beside its weights.
func heldRows(bucket int) int { return min(8, bucket) }

// held is the bytes of so many rows' inputs of a granule.
func (f format) held(rows int) int { return rows * 2 * f.inputs }

func (f format) experts() string { return "experts" + f.file[len("stream"):] }

// expertsPass is the experts' part of a pass: addresses of what they read and make.
type expertsPass struct {
	*Experts
	expertsLayout
	dst, x32, x16, routing, step driver.Ptr
	work, tables, pairs          driver.Ptr
	shares, shared               driver.Ptr // 0: there is none
	tiles, slots, each, bucket   int
	rows                         Rows // bucket of them
	few                          bool // rows of an expert, as in decode passes
	wideTile                     int  // of kernels/grouped_wide.cuh, in 8 rows; 0: others run
	// logits are those of the only row, by which its experts are to be chosen; 0: they are.
	logits driver.Ptr
}

func (p *expertsPass) at(offset int) driver.Ptr { return p.work + driver.Ptr(offset) }

// Experts adds to dst, f32 [bucket, width], what the experts make of x, [bucket, width],
// by the routing of Route, which has made the lists. PrepareExperts has made room.
func (d *Device) Experts(dst, x32, x16, routing driver.Ptr, e *Experts, step driver.Ptr, decode bool, rows Rows) {
	p := d.expertsPass(dst, x32, x16, routing, e, step, decode, rows)
	if p.shared != 0 && p.each == e.Chosen {
		d.sharedExpert(p)
	}
	if s, ok := d.fewWholeShape(p); ok {
		d.fewWhole(p, s)
		return
	}
	d.expertsIn(p)
	d.expertsOut(p)
}

func (d *Device) expertsPass(dst, x32, x16, routing driver.Ptr, e *Experts, step driver.Ptr, decode bool, rows Rows) *expertsPass {
	bucket := rows.Count
	p := &expertsPass{Experts: e, expertsLayout: e.layout(decode, rows), rows: rows, dst: dst, x32: x32, x16: x16, routing: routing, step: step, work: d.mixtures.work.data, bucket: bucket}
	if d.err == nil && p.size > d.mixtures.work.size {
		d.err = fmt.Errorf("cuda: no room was made for the experts of %d rows", bucket)
	}
	route, lists := routeLayoutOf(e.Gate.Count, e.Chosen, bucket), d.mixtures.route.data
	p.tables, p.pairs, p.tiles = lists+driver.Ptr(route.tables), lists+driver.Ptr(route.pairs), route.tiles
	p.each, p.few = e.each(decode, rows), FewForExperts(decode, rows)
	p.wideTile = d.groupedTile(e.Wide(), decode, rows, e.Chosen, e.Gate.Count)
	if e.Shared != nil {
		p.shares = lists + driver.Ptr(route.shares)
		if p.each == e.Chosen {
			p.shared = p.at(p.sharedMade)
		}
	}
	if leaves(e.Router != nil, e.Shared != nil, e.Joined, decode, rows) {
		p.logits = lists + driver.Ptr(route.logits)
	}
	more := p.each - e.Chosen
	p.slots = e.Gate.Count + more
	if bucket <= fewRows {
		p.slots = slotsOf(e.Gate.Count, e.Chosen, more, bucket)
	}
	return p
}

// expertsIn makes silu(gate·x) ⊙ up·x of all pairs, in the form that down reads.
func (d *Device) expertsIn(p *expertsPass) {
	n := p.bucket * p.each * p.inner()
	if !p.Gate.Of.Fast() {
		d.expertsSIMT(p.at(p.inner32), p.x32, p.routing, &p.Gate, &p.Up, p.Chosen, p.Chosen, p.step, p.bucket)
		if p.Down.Of.Fast() {
			d.ToBF16(p.at(p.inner16), p.at(p.inner32), n)
		}
		return
	}
	switch {
	case p.wideTile > 0:
		d.expertsWide(p, p.at(p.inner16), p.x16, &p.Gate, &p.Up)
	case p.few:
		d.expertsGated(p)
	default:
		d.expertsGrouped(p, p.at(p.inner16), p.x16, &p.Gate, &p.Up)
	}
	if !p.Down.Of.Fast() {
		d.ToF32(p.at(p.inner32), p.at(p.inner16), n)
	}
}

// expertsOut makes down of that, and adds all to the rows.
func (d *Device) expertsOut(p *expertsPass) {
	switch {
	case !p.Down.Of.Fast():
		d.expertsSIMT(p.at(p.made), p.at(p.inner32), p.routing, &p.Down, nil, p.Chosen, 1, p.step, p.bucket)
	case p.wideTile > 0:
		d.expertsWide(p, p.at(p.made), p.at(p.inner16), &p.Down, nil)
	case !p.few:
		d.expertsGrouped(p, p.at(p.made), p.at(p.inner16), &p.Down, nil)
	case p.bucket <= fewRows && p.joinParts() != 0:
		d.expertsJoin(p)
		return
	default:
		d.expertsDown(p)
	}
	shared, line := p.shared, p.width()
	if p.each > p.Chosen {
		shared, line = p.at(p.made+4*p.Chosen*p.width()), p.each*p.width()
	}
	d.sumExperts(p.dst, p.at(p.made), shared, line, p.shares, p.routing, p.width(), p.Chosen, p.each, p.step, p.bucket)
}

// sharedExpert makes the shared expert's rows, in launches of its own.
func (d *Device) sharedExpert(p *expertsPass) {
	gate, up, down := p.Shared[0], p.Shared[1], p.Shared[2]
	inner32, inner16, up32 := p.at(p.shared32), p.at(p.shared16), p.at(p.up32)
	if gate.Weight.Fast() && up.Weight.Fast() && gate.Weight.format() == up.Weight.format() {
		to := Target{BF16: inner16}
		if !down.Weight.Fast() {
			to = Target{F32: inner32}
		}
		if p.few {
			d.ProjectGated(to, p.x16, gate, up, p.bucket)
		} else {
			d.PrefillGated(to, p.x16, gate, up, p.rows)
		}
	} else {
		d.projectAny(inner32, p.x32, p.x16, gate, p.few, p.rows)
		d.projectAny(up32, p.x32, p.x16, up, p.few, p.rows)
		d.GatedAct(inner32, inner16, inner32, up32, false, p.bucket*gate.Weight.Out)
	}
	d.projectAny(p.shared, inner32, inner16, down, p.few, p.rows)
}

// projectAny is a projection by a weight of any form.
func (d *Device) projectAny(dst, x32, x16 driver.Ptr, w Linear, few bool, rows Rows) {
	to := []Target{{F32: dst}}
	switch {
	case !w.Weight.Fast():
		d.SIMTProject(dst, x32, w.Weight, 0, false, rows.Count)
	case few:
		d.Project(to, x16, []Linear{w}, rows.Count)
	default:
		d.PrefillProject(to, x16, []Linear{w}, rows)
	}
}

// expertsGated makes silu(gate·x) ⊙ up·x of all pairs, bf16.
func (d *Device) expertsGated(p *expertsPass) {
	w := p.Gate.Of
	f, parts := w.format(), gatedParts(w.format(), w.In)
	if p.logits != 0 {
		d.gatedOne(p, f, parts)
		return
	}
	if s, ok := d.fewGatedShape(p, f, 0); ok {
		d.fewGated(p, f, parts, s)
		return
	}
	d.expertSlots(p, "experts_gated", w, 2*f.granule, parts, p.each, p.Gate.address(0), p.Up.address(0), uint64(p.x16), uint64(p.at(p.inner16)))
}

// gatedOne makes silu(gate·x) ⊙ up·x of the only row's experts.
func (d *Device) gatedOne(p *expertsPass, f format, parts int) {
	const warps = 4
	w, listed := p.Gate.Of, p.Gate.Count+p.Gate.More
	grid := dim{x: Ceil(Ceil(w.Out, 16), warps/parts), y: p.each}
	if d.copiesExperts(f, w.In) {
		most, k := Ceil(w.In/f.inputs, parts), f.oneKernel("gated")
		k.shared = warps*2*most*f.granule + 2*w.In + 16*listed + warps*2*16*4 + 16 + 8*(1+warps*Ceil(most, oneChunk))
		if k.shared <= d.Info.SharedPerBlock-reservedShared {
			d.launch(k, grid, 32*warps,
				p.Gate.address(0), p.Up.address(0), uint64(p.x16), uint64(p.at(p.inner16)), uint64(w.In), uint64(w.Out), uint64(f.granule), uint64(f.shift), uint64(parts),
				uint64(listed), uint64(p.logits), uint64(p.Gate.Count), uint64(p.Chosen))
			return
		}
	}
	stage := warps * (2*f.granule + f.held(1))
	fixed := 16*listed + 16 // where matrices lie, and which expert it is
	// Three blocks fit on a multiprocessor.
	stages := expertStages(Ceil(Ceil(w.In, f.inputs), parts), stage, min(72<<10, d.Info.SharedPerBlock-reservedShared)-fixed)
	d.launch(kernel{f.experts(), "experts_gated_one" + f.file[len("stream"):], stages*stage + fixed}, grid, 32*warps,
		p.Gate.address(0), p.Up.address(0), uint64(p.x16), uint64(p.at(p.inner16)), uint64(w.In), uint64(w.Out), uint64(f.granule), uint64(f.shift), uint64(stages), uint64(parts),
		uint64(listed), uint64(p.logits), uint64(p.Gate.Count), uint64(p.Chosen))
}

// joinOne makes down of the only row's experts and adds it to dst.
func (d *Device) joinOne(p *expertsPass, f format, parts int) {
	const most = 16 // warps: that many stand beside blocks of gate and up
	w, warps := p.Down.Of, p.each*parts
	if warps > most { // all alike; a warp has the same part of each of its experts
		warps = parts * Ceil(p.each, Ceil(warps, most))
	}
	k := kernel{file: f.experts(), name: "experts_join_one" + f.file[len("stream"):]}
	stage := warps * (f.granule + f.held(1))
	if d.copiesExperts(f, w.In) {
		k = f.oneKernel("join")
		stage = warps * (f.fewJoinStage(1) + 8)
	}
	made := p.each*(parts*16+2)*4 + 32*p.each // with the lists
	stages := expertStages(Ceil(p.each*parts, warps)*Ceil(Ceil(w.In, f.inputs), parts), stage, min(96<<10, d.Info.SharedPerBlock-reservedShared)-made)
	k.shared = stages*stage + made
	d.launch(k, dim{x: Ceil(w.Out, 16)}, 32*warps,
		p.Down.address(0), uint64(p.at(p.inner16)), uint64(p.dst), uint64(w.In), uint64(w.Out), uint64(f.granule), uint64(f.shift), uint64(stages), uint64(parts),
		uint64(p.each), uint64(p.Down.Count+p.Down.More), uint64(p.logits), uint64(p.Gate.Count), uint64(p.Chosen), flag(p.Router.Renormalise), uint64(p.routing))
}

// expertsDown makes down of all pairs, f32.
func (d *Device) expertsDown(p *expertsPass) {
	w := p.Down.Of
	f, parts := w.format(), downParts(w.format(), w.In)
	d.expertSlots(p, "experts_down", w, f.granule, parts, 1, p.Down.address(0), uint64(p.at(p.inner16)), uint64(p.at(p.made)))
}

// expertSlots launches a kernel whose blocks take some strips of an expert, args its first
// arguments. bytes are those of a granule of a warp's strips; each is how many pairs share
// a row of the inputs.
func (d *Device) expertSlots(p *expertsPass, name string, w *Weight, bytes, parts, each int, args ...uint64) {
	const warps = 8
	f, held := w.format(), heldRows(p.bucket)
	stage := warps * (bytes + f.held(held))
	stages := expertStages(Ceil(Ceil(w.In, f.inputs), parts), stage, 72<<10) // so that three blocks fit
	d.launch(kernel{f.experts(), name + f.file[len("stream"):], stages * stage}, dim{x: Ceil(Ceil(w.Out, 16), warps/parts), y: p.slots}, 32*warps, append(args,
		uint64(p.tables), uint64(p.pairs), uint64(w.In), uint64(w.Out), uint64(f.granule), uint64(f.shift), uint64(stages), uint64(parts), uint64(each), uint64(held), uint64(p.Gate.Count+p.Gate.More))...)
}

// joinLists is how many rows of an expert a stage of down holds, and how many entries the lists of
// such rows have, at most. Most experts have fewer rows, and rings are deeper.
func (p *expertsPass) joinLists() (held, entries int) {
	held = min(4, p.bucket)
	return held, p.slots + p.bucket*p.each/held
}

// expertsJoin makes down of all pairs and adds it to dst.
func (d *Device) expertsJoin(p *expertsPass) {
	w := p.Down.Of
	f, parts := w.format(), downParts(w.format(), w.In)
	if p.logits != 0 {
		d.joinOne(p, f, parts)
		return
	}
	held, entries := p.joinLists()
	made := p.bucket*p.each*parts*16*4 + 16*entries + 8*p.bucket*p.each + 8*(p.Down.Count+p.Down.More) // with the lists
	most := min(d.Info.SharedPerBlock-reservedShared, 200<<10) - made
	warps, stage := 24, f.granule+f.held(held)
	k := kernel{file: f.experts(), name: "experts_join" + f.file[len("stream"):]}
	if d.copiesExperts(f, w.In) {
		k = f.fewKernel("join")
		stage = f.fewJoinStage(held) + 8
	}
	if entries*parts <= 16 || 2*warps*stage > most {
		warps = 16
	}
	stage *= warps
	stages := expertStages(Ceil(entries*parts, warps)*Ceil(Ceil(w.In, f.inputs), parts), stage, most)
	k.shared = stages*stage + made
	d.launch(k, dim{x: Ceil(w.Out, 16)}, 32*warps,
		p.Down.address(0), uint64(p.at(p.inner16)), uint64(p.dst), uint64(p.tables), uint64(p.pairs),
		uint64(w.In), uint64(w.Out), uint64(f.granule), uint64(f.shift), uint64(stages), uint64(parts),
		uint64(p.shared), uint64(p.shares), uint64(p.routing), uint64(p.Chosen), uint64(p.each), uint64(p.step), uint64(p.bucket), uint64(p.slots),
		uint64(held), uint64(p.Down.Count+p.Down.More), flag(p.Gate.Of.Fast()))
}

// expertsSIMT is the projection of all pairs in the exact arithmetic: gated where there
// is an up. each is how many pairs share a row of x.
func (d *Device) expertsSIMT(dst, x, routing driver.Ptr, gate, up *ExpertList, chosen, each int, step driver.Ptr, bucket int) {
	w := gate.Of
	var ups [3]uint64
	if up != nil {
		ups = [3]uint64{up.address(0), up.address(1), up.address(2)}
	}
	name := w.DType.String()
	if !w.DType.Quantized() && w.In%8 != 0 {
		name = "odd"
	}
	d.launch(kernel{file: "experts_simt", name: "experts_simt_" + name}, dim{x: bucket * chosen, y: Ceil(w.Out, simtOutputs)}, 64,
		uint64(dst), uint64(x), uint64(routing), gate.address(0), gate.address(1), gate.address(2), ups[0], ups[1], ups[2],
		uint64(w.Out), uint64(w.In), uint64(w.Group), floatKind(w.DType), uint64(chosen), uint64(each), uint64(step))
}
