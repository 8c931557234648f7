package launch

import (
	"fmt"

	"windrow/cuda/driver"
)

// Experts in the host's memory run there: a forward's rows leave for it, with what their
// router chose, and what the experts made of them comes back. Kernels write and read the
// host's memory themselves: a copy on either side would cost 7 µs a layer.
var (
	kernelRowsLeave  = kernel{file: "host", name: "rows_leave"}
	kernelRowsReturn = kernel{file: "host", name: "rows_return"}
)

// HostLayout says where in page-locked memory the rows lie that the host's experts take and
// make, in bytes.
type HostLayout struct {
	Rows, Routing, Made int // [bucket, width], [bucket, line], [bucket, width], all f32
	Size                int
}

// LayoutHost is that of bucket rows of a width, whose routing has line numbers each.
func LayoutHost(bucket, width, line int) (l HostLayout) {
	l.Routing = aligned(4 * bucket * width)
	l.Made = l.Routing + aligned(4*bucket*line)
	l.Size = l.Made + aligned(4*bucket*width)
	return l
}

// RowsLeave writes the step's rows of h [bucket, width] and of routing [bucket, line], f32,
// to memory of the host.
func (d *Device) RowsLeave(to, toRouting, h, routing driver.Ptr, width, line int, step driver.Ptr, bucket int) {
	if d.err == nil && line > rowThreads {
		d.err = fmt.Errorf("cuda: a routing of %d numbers a row, at most %d", line, rowThreads)
	}
	d.launch(kernelRowsLeave, dim{x: Ceil(width, 4*rowThreads), y: bucket}, rowThreads,
		uint64(to), uint64(toRouting), uint64(h), uint64(routing), uint64(width), uint64(line), uint64(step))
}

// RowsReturn adds what the host made of the step's rows, in its memory, to dst: both f32
// [bucket, width].
func (d *Device) RowsReturn(dst, made driver.Ptr, width int, step driver.Ptr, bucket int) {
	d.launch(kernelRowsReturn, dim{x: Ceil(width, 4*rowThreads), y: bucket}, rowThreads, uint64(dst), uint64(made), uint64(width), uint64(step))
}

// Apart has the next kernel begin when all work before it is done. The first one of a graph
// has no kernel before it whose end it could overlap.
func (d *Device) Apart() { d.overlap = false }

// SharedExpert is the expert of a mixture that every row has, where the others are the
// host's: its gate, up and down. The router before it made the rows' shares.
type SharedExpert struct {
	Weights []Linear
	Router  *Router
}

// Reads says in which forms its inputs are read.
func (e *SharedExpert) Reads() (f32, bf16 bool) {
	for _, w := range e.Weights[:2] {
		f32, bf16 = f32 || !w.Weight.Fast(), bf16 || w.Weight.Fast()
	}
	return f32, bf16
}

func (e *SharedExpert) layout(bucket int) (l expertsLayout) {
	l.share(e.Weights, bucket)
	return l
}

// PrepareShared makes room for a shared expert of that many rows; changed reports whether
// addresses changed.
func (d *Device) PrepareShared(e *SharedExpert, decode bool, rows Rows) (changed bool, err error) {
	changed, err = d.grow(&d.mixtures.work, e.layout(rows.Count).size)
	if err == nil && !FewForExperts(decode, rows) {
		var also bool
		also, err = d.prepareSharedGEMM(e.Weights, rows)
		changed = changed || also
	}
	return changed, err
}

// Shared adds to dst, f32 [bucket, width], what a shared expert makes of x, [bucket,
// width], by the shares that Route has made. PrepareShared has made room.
func (d *Device) Shared(dst, x32, x16 driver.Ptr, e *SharedExpert, step driver.Ptr, decode bool, rows Rows) {
	bucket, width := rows.Count, e.Weights[2].Weight.Out
	p := &expertsPass{Experts: &Experts{Shared: e.Weights}, expertsLayout: e.layout(bucket), rows: rows, x32: x32, x16: x16, work: d.mixtures.work.data, bucket: bucket, few: FewForExperts(decode, rows)}
	if d.err == nil && p.size > d.mixtures.work.size {
		d.err = fmt.Errorf("cuda: no room was made for a shared expert of %d rows", bucket)
	}
	p.shared = p.at(p.sharedMade)
	d.sharedExpert(p)
	shares := d.mixtures.route.data + driver.Ptr(routeLayoutOf(e.Router.Weight.Out, e.Router.Chosen, bucket).shares)
	d.sumExperts(dst, 0, p.shared, width, shares, 0, width, 0, 0, step, bucket)
}

// sumExperts adds to the step's rows of dst the k experts' rows of made, each of a row,
// weighted by routing, and a shared one's, line apart, by shares.
func (d *Device) sumExperts(dst, made, shared driver.Ptr, line int, shares, routing driver.Ptr, width, k, each int, step driver.Ptr, bucket int) {
	d.launch(kernel{file: "route", name: "experts_sum"}, dim{x: Ceil(width, 4*256), y: bucket}, 256,
		uint64(dst), uint64(made), uint64(shared), uint64(line), uint64(shares), uint64(routing), uint64(width), uint64(k), uint64(each), uint64(step))
}
