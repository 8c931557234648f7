package cuda

import (
	"fmt"

	"windrow/cuda/driver"
)

var kernelAddPartials = kernel{file: "partials", name: "add_partials"}

// A projection whose inputs are cut over the GPUs of a group makes a part of its
// sum on each of them. In decode passes all get all parts and add them in the
// order of the ranks, so that a row's bits depend on nothing but the row; in
// others NCCL adds, which moves less between more than two.

// partialsBytes is the memory of n floats of parts.
func (d *device) partialsBytes(n int, decode bool) int {
	if decode {
		return 4 * n * d.rank.count
	}
	return 4 * n
}

// preparePartials makes room for parts of n floats; changed tells whether addresses
// changed.
func (d *device) preparePartials(n int, decode bool) (changed bool, err error) {
	if n > elementsALaunch {
		return false, fmt.Errorf("cuda: a forward of %d sums in several GPUs, at most %d", n, elementsALaunch)
	}
	need := d.partialsBytes(n, decode)
	if need <= d.partials.size {
		return false, nil
	}
	if err := d.stream.Synchronize(); err != nil {
		return false, err
	}
	if err := d.freePartials(); err != nil {
		return true, err
	}
	if d.partials.data, err = d.ctx.Alloc(need); err == nil {
		d.partials.size = need
	}
	return true, err
}

func (d *device) freePartials() error {
	p := d.partials.data
	d.partials = room{}
	return d.ctx.Free(p)
}

// room is memory that is kept.
type room struct {
	data driver.Ptr
	size int
}

// ownPartial is where this GPU writes its part of n floats.
func (d *device) ownPartial(n int, decode bool) driver.Ptr {
	if decode {
		return d.partials.data + driver.Ptr(4*n*d.rank.index)
	}
	return d.partials.data
}

// joinPartials adds the parts of n floats of all GPUs to dst, on each of them.
// preparePartials has made room.
func (d *device) joinPartials(dst driver.Ptr, n int, decode bool) {
	if d.err == nil && d.partialsBytes(n, decode) > d.partials.size {
		d.err = fmt.Errorf("cuda: no room was made for parts of %d sums", n)
	}
	count := 1
	if decode {
		count = d.rank.count
		d.enqueue(func() error { return d.rank.gather(d.stream, d.partials.data, n) })
	} else {
		d.enqueue(func() error { return d.rank.reduce(d.stream, d.partials.data, n) })
	}
	d.addPartials(dst, d.partials.data, count, n)
}

// addPartials adds count parts of n floats, one behind the other, to dst in turn.
func (d *device) addPartials(dst, parts driver.Ptr, count, n int) {
	d.launch(kernelAddPartials, dim{x: ceil(n, 4*rowThreads)}, rowThreads, uint64(dst), uint64(parts), uint64(count), uint64(n))
}
