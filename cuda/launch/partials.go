package launch

import (
	"fmt"

	"windrow/cuda/driver"
)

var (
	kernelAddPartials   = kernel{file: "partials", name: "add_partials"}
	kernelClearPartials = kernel{file: "partials", name: "clear_partials"}
)

// A projection whose inputs are cut over the GPUs of a group makes a part of its
// sum on each of them. In decode passes all get all parts and add them in the
// order of the ranks, so that a row's bits depend on nothing but the row: by one
// kernel that writes into the others' memory (peers.go), or through NCCL. In other
// passes NCCL adds, which moves less between more than two.

// Join makes the device a rank of a group, in which projections may make parts of
// sums.
func (d *Device) Join(r *Rank) { d.rank = r }

// Grouped reports whether the device is one of a group.
func (d *Device) Grouped() bool { return d.rank != nil }

// GatherPartials and ReducePartials queue the exchange of n floats of parts, as
// JoinPartials does in decode passes and in others.
func (d *Device) GatherPartials(n int) error { return d.rank.gather(d.Stream, d.partials.data, n) }
func (d *Device) ReducePartials(n int) error { return d.rank.reduce(d.Stream, d.partials.data, n) }

// partialsBytes is the memory of n floats of parts.
func (d *Device) partialsBytes(n int, decode bool) int {
	if decode {
		return 4 * n * d.rank.count
	}
	return 4 * n
}

// PreparePartials makes room for parts of n floats; changed reports whether addresses
// changed.
func (d *Device) PreparePartials(n int, decode bool) (changed bool, err error) {
	if n > elementsALaunch {
		return false, fmt.Errorf("cuda: a forward of %d sums in several GPUs, at most %d", n, elementsALaunch)
	}
	need := d.partialsBytes(n, decode)
	if need <= d.partials.size {
		return false, nil
	}
	if err := d.Stream.Synchronize(); err != nil {
		return false, err
	}
	if err := d.freePartials(); err != nil {
		return true, err
	}
	if d.partials.data, err = d.Context.Alloc(need); err == nil {
		d.partials.size = need
	}
	return true, err
}

func (d *Device) freePartials() error {
	p := d.partials.data
	d.partials = room{}
	return d.Context.Free(p)
}

// room is memory that is kept.
type room struct {
	data driver.Ptr
	size int
}

// OwnPartial is where this GPU writes its part of n floats.
func (d *Device) OwnPartial(n int, decode bool) driver.Ptr {
	if decode {
		return d.partials.data + driver.Ptr(4*n*d.rank.index)
	}
	return d.partials.data
}

// ClearPartial makes this GPU's part of n floats 0, for what adds to it.
func (d *Device) ClearPartial(n int, decode bool) {
	d.clearPartials(d.OwnPartial(n, decode), n)
}

func (d *Device) clearPartials(part driver.Ptr, n int) {
	d.launch(kernelClearPartials, dim{x: Ceil(n, 4*rowThreads)}, rowThreads, uint64(part), uint64(n))
}

// JoinPartials adds the parts of n floats of all GPUs to dst, on each of them.
// PreparePartials has made room.
func (d *Device) JoinPartials(dst driver.Ptr, n int, decode bool) {
	if d.err == nil && d.partialsBytes(n, decode) > d.partials.size {
		d.err = fmt.Errorf("cuda: no room was made for parts of %d sums", n)
	}
	count := 1
	if decode && d.exchangesByPeers(n) {
		d.exchangePartials(dst, d.OwnPartial(n, true), n)
		return
	}
	if decode {
		count = d.rank.count
		d.enqueue(func() error { return d.GatherPartials(n) })
	} else {
		d.enqueue(func() error { return d.ReducePartials(n) })
	}
	d.addPartials(dst, d.partials.data, count, n)
}

// addPartials adds count parts of n floats, one behind the other, to dst in turn.
func (d *Device) addPartials(dst, parts driver.Ptr, count, n int) {
	d.launch(kernelAddPartials, dim{x: Ceil(n, 4*rowThreads)}, rowThreads, uint64(dst), uint64(parts), uint64(count), uint64(n))
}
