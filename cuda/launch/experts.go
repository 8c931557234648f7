package launch

import (
	"fmt"

	"windrow/cuda/driver"
)

// ExpertList is one matrix of each expert of a layer, all of one form.
type ExpertList struct {
	Of    *Weight    // any of them: type, shape and form are those of all
	Where driver.Ptr // u64 [3][experts]: addresses of data, and of scales and biases as stored
	Count int
}

// address is where the addresses of part i (data, scales, biases) lie.
func (l *ExpertList) address(i int) uint64 { return uint64(l.Where) + uint64(8*i*l.Count) }

// Experts are the matrices of a mixture of experts.
type Experts struct {
	Gate, Up, Down ExpertList
	// Shared is the gate, up and down of an expert that every row has; nil: there is none.
	Shared []Linear
	Chosen int
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

func (e *Experts) layout(bucket int) (l expertsLayout) {
	next := func(n int) int {
		here := l.size
		l.size += aligned(n)
		return here
	}
	pairs := bucket * e.Chosen
	l.inner32, l.inner16 = next(4*pairs*e.inner()), next(2*pairs*e.inner())
	if bucket > fewRows || !e.Down.Of.Fast() || e.joinParts() == 0 {
		l.made = next(4 * pairs * e.width())
	}
	if s := e.Shared; s != nil {
		n := bucket * s[0].Weight.Out
		l.shared32, l.shared16, l.up32 = next(4*n), next(2*n), next(4*n)
		l.sharedMade = next(4 * bucket * e.width())
	}
	return l
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
	bucket := rows.Count
	changed, err = d.grow(&d.mixtures.work, e.layout(bucket).size)
	if err == nil && e.Shared != nil && !FewForExperts(decode, rows) {
		for _, w := range [][]Linear{e.Shared[:2], e.Shared[2:]} {
			if !w[0].Weight.Fast() || err != nil {
				continue
			}
			var also bool
			also, err = d.PrepareGEMM(w, rows)
			changed = changed || also
		}
	}
	return changed, err
}

// gatedParts and downParts are how many parts a strip's inputs are cut into: by shape
// alone, since the order of sums depends on it.
func gatedParts(f format, in int) int { return min(8, PowerOfTwo(Ceil(in, f.inputs)+1)/2) }
func downParts(f format, in int) int  { return min(2, Ceil(in, f.inputs)) }

// joinParts is downParts where down and the sum of few rows are one launch, else 0.
func (e *Experts) joinParts() int {
	f := e.Down.Of.format()
	parts := downParts(f, e.Down.Of.In)
	if fewRows*e.Chosen*parts*16*4 > 64<<10 {
		return 0
	}
	return parts
}

// expertStages is the depth of the warps' rings: all that a warp reads where it is
// little, at most 7 granules, in a limit of shared memory.
func expertStages(perWarp, bytes, limit int) int { return max(1, min(perWarp, 7, limit/bytes)) }

func (f format) experts() string { return "experts" + f.file[len("stream"):] }

// Experts adds to dst, f32 [bucket, width], what the experts make of x, [bucket, width],
// by the routing of Route, which has made the lists (tiles of many rows of an expert, for
// more than 32 rows). PrepareExperts has made room.
func (d *Device) Experts(dst, x32, x16, routing driver.Ptr, e *Experts, step driver.Ptr, decode bool, rows Rows) {
	bucket := rows.Count
	l, work := e.layout(bucket), d.mixtures.work.data
	if d.err == nil && l.size > d.mixtures.work.size {
		d.err = fmt.Errorf("cuda: no room was made for the experts of %d rows", bucket)
	}
	at := func(offset int) driver.Ptr { return work + driver.Ptr(offset) }
	route := d.routeLayout(e.Gate.Count, e.Chosen, bucket)
	tables, pairs := d.mixtures.route.data+driver.Ptr(route.tables), d.mixtures.route.data+driver.Ptr(route.pairs)
	shares, shared := driver.Ptr(0), driver.Ptr(0)
	if e.Shared != nil {
		shares, shared = d.mixtures.route.data+driver.Ptr(route.shares), at(l.sharedMade)
		d.sharedExpert(shared, x32, x16, e, at(l.shared32), at(l.shared16), at(l.up32), FewForExperts(decode, rows), rows)
	}
	slots := e.Gate.Count
	if bucket <= fewRows {
		slots = min(slots, bucket*e.Chosen)
	}
	grouped := !FewForExperts(decode, rows)
	n := bucket * e.Chosen * e.inner()
	if gate := e.Gate.Of; gate.Fast() {
		if grouped {
			d.expertsGrouped(at(l.inner16), x16, &e.Gate, &e.Up, e.Chosen, bucket*e.Chosen, tables, pairs, route.tiles)
		} else {
			d.expertsGated(at(l.inner16), x16, e, tables, pairs, slots, bucket > fewRows)
		}
		if !e.Down.Of.Fast() {
			d.ToF32(at(l.inner32), at(l.inner16), n)
		}
	} else {
		d.expertsSIMT(at(l.inner32), x32, routing, &e.Gate, &e.Up, e.Chosen, e.Chosen, step, bucket)
		if e.Down.Of.Fast() {
			d.ToBF16(at(l.inner16), at(l.inner32), n)
		}
	}
	switch {
	case !e.Down.Of.Fast():
		d.expertsSIMT(at(l.made), at(l.inner32), routing, &e.Down, nil, e.Chosen, 1, step, bucket)
	case grouped:
		d.expertsGrouped(at(l.made), at(l.inner16), &e.Down, nil, 1, bucket*e.Chosen, tables, pairs, route.tiles)
	case bucket <= fewRows && e.joinParts() != 0:
		d.expertsJoin(dst, at(l.inner16), routing, shared, shares, e, tables, pairs, step, bucket)
		return
	default:
		d.expertsDown(at(l.made), at(l.inner16), e, tables, pairs, slots)
	}
	d.launch(kernel{file: "route", name: "experts_sum"}, dim{x: Ceil(e.width(), 4*256), y: bucket}, 256,
		uint64(dst), uint64(at(l.made)), uint64(shared), uint64(shares), uint64(routing), uint64(e.width()), uint64(e.Chosen), uint64(step))
}

// sharedExpert makes the shared expert's rows.
func (d *Device) sharedExpert(dst, x32, x16 driver.Ptr, e *Experts, inner32, inner16, up32 driver.Ptr, few bool, rows Rows) {
	gate, up, down := e.Shared[0], e.Shared[1], e.Shared[2]
	if gate.Weight.Fast() && up.Weight.Fast() && gate.Weight.format() == up.Weight.format() {
		to := Target{BF16: inner16}
		if !down.Weight.Fast() {
			to = Target{F32: inner32}
		}
		if few {
			d.ProjectGated(to, x16, gate, up, rows.Count)
		} else {
			d.PrefillGated(to, x16, gate, up, rows)
		}
	} else {
		d.projectAny(inner32, x32, x16, gate, few, rows)
		d.projectAny(up32, x32, x16, up, few, rows)
		d.GatedAct(inner32, inner16, inner32, up32, false, rows.Count*gate.Weight.Out)
	}
	d.projectAny(dst, inner32, inner16, down, few, rows)
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
// many is whether experts may have more rows than a few.
func (d *Device) expertsGated(dst, x driver.Ptr, e *Experts, tables, pairs driver.Ptr, slots int, many bool) {
	w := e.Gate.Of
	f, parts := w.format(), gatedParts(w.format(), w.In)
	const warps = 8
	sums := warps * 2 * 128 * 4
	stages := expertStages(Ceil(Ceil(w.In, f.inputs), parts), warps*2*f.granule, 72<<10)
	name := "experts_gated"
	if many {
		name = "experts_gated_many"
	}
	d.launch(kernel{f.experts(), name + f.file[len("stream"):], stages*warps*2*f.granule + sums}, dim{x: slots, y: Ceil(Ceil(w.Out, 16), warps/parts)}, 32*warps,
		e.Gate.address(0), e.Up.address(0), uint64(x), uint64(dst), uint64(tables), uint64(pairs),
		uint64(w.In), uint64(w.Out), uint64(f.granule), uint64(f.shift), uint64(stages), uint64(parts), uint64(e.Chosen))
}

// expertsDown makes down of all pairs, f32.
func (d *Device) expertsDown(dst, x driver.Ptr, e *Experts, tables, pairs driver.Ptr, slots int) {
	w := e.Down.Of
	f, parts := w.format(), downParts(w.format(), w.In)
	const warps = 8
	sums := warps * 128 * 4
	stages := expertStages(Ceil(Ceil(w.In, f.inputs), parts), warps*f.granule, 72<<10)
	d.launch(kernel{f.experts(), "experts_down" + f.file[len("stream"):], stages*warps*f.granule + sums}, dim{x: slots, y: Ceil(Ceil(w.Out, 16), warps/parts)}, 32*warps,
		e.Down.address(0), uint64(x), uint64(dst), uint64(tables), uint64(pairs),
		uint64(w.In), uint64(w.Out), uint64(f.granule), uint64(f.shift), uint64(stages), uint64(parts))
}

// expertsJoin makes down of all pairs and adds it to dst.
func (d *Device) expertsJoin(dst, x, routing, shared, shares driver.Ptr, e *Experts, tables, pairs, step driver.Ptr, bucket int) {
	w := e.Down.Of
	f, parts := w.format(), downParts(w.format(), w.In)
	const warps = 16
	made := bucket * e.Chosen * parts * 16 * 4
	most := min(d.Info.SharedPerBlock-reservedShared, 200<<10) - made
	stages := expertStages(7, warps*f.granule, most)
	d.launch(kernel{f.experts(), "experts_join" + f.file[len("stream"):], stages*warps*f.granule + made}, dim{x: Ceil(w.Out, 16)}, 32*warps,
		e.Down.address(0), uint64(x), uint64(dst), uint64(tables), uint64(pairs),
		uint64(w.In), uint64(w.Out), uint64(f.granule), uint64(f.shift), uint64(stages), uint64(parts),
		uint64(shared), uint64(shares), uint64(routing), uint64(e.Chosen), uint64(step))
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
