package launch

import (
	"fmt"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/cuda/driver"
)

func init() {
	for _, f := range projectFormats {
		name := vectors.Name(f.dt, f.group)
		registerSelfTest("project/"+name+"/normed", func(d *Device) error { return checkNormed(d, f.dt, f.group) })
	}
}

// checkNormed compares projections that norm their row with a norm and then a
// projection of it among others: the same bits. The last width is more than the
// kernels keep in registers.
func checkNormed(d *Device, dt backend.DType, group int) error {
	b := newProjectBench(d, uint64(dt)<<8|uint64(group)+3)
	widths := append(shapesOf(dt, group), 8192+768)
	for i, in := range widths {
		d.Tuning.blocks = []int{0, 2}[i%2] // 2: rings go round
		b.checkNormed(dt, group, in, 1)
	}
	return b.close()
}

// checkNormed compares so many rows that projections norm; the only one with itself among three.
func (b *projectBench) checkNormed(dt backend.DType, group, in, normed int) {
	const eps = 1e-5
	rows := normed
	if normed == 1 {
		rows = 3
	}
	outs := []int{56, 40, 40}
	noise, norm, x := b.uploadF32(b.normals(normed*in)), b.uploadF32(b.normals(in)), b.alloc(4*normed*in)
	tensors := make([]Linear, len(outs))
	for i, out := range outs {
		tensors[i] = Linear{Weight: b.matrix(b.tensor(dt, group, out, in))}
	}
	tensors[1].Bias = b.uploadF32(b.normals(outs[1]))
	// Targets are those of both ways, of all rows.
	before := b.normals(rows * outs[0])
	var dst, gated [2][]Target
	for way := range dst {
		for i, out := range outs {
			t := Target{F32: b.alloc(4 * rows * out)}
			if i == 0 {
				t = Target{F32: b.uploadF32(before), Add: true}
			}
			dst[way] = append(dst[way], t)
		}
		gated[way] = []Target{{F32: b.alloc(4 * rows * outs[1]), BF16: b.alloc(2 * rows * outs[1])}}
	}
	xs := b.alloc(2 * rows * in)
	if b.err != nil {
		return
	}
	makeX := func() { b.d.RMSNorm(x, 0, noise, norm, in, normed, eps) } // right before it is read, as in a step
	makeX()
	for r := 0; r < rows; r += normed {
		b.d.RMSNorm(0, xs+driver.Ptr(2*r*in), x, norm, in, normed, eps)
	}
	b.d.Project(dst[0], xs, tensors, rows)
	b.d.ProjectGated(gated[0][0], xs, tensors[1], tensors[2], rows)
	if !b.d.TakesNorm(tensors, false, normed) || !b.d.TakesNorm(tensors[1:], true, normed) {
		b.note(fmt.Errorf("%d rows of %d inputs are not normed on the way", normed, in))
		return
	}
	makeX()
	b.d.ProjectNormed(dst[1], Inputs{x, norm, eps}, tensors, false, normed)
	makeX()
	b.d.ProjectNormed(gated[1], Inputs{x, norm, eps}, tensors[1:], true, normed)
	for i, out := range outs {
		b.equal(fmt.Sprintf("%d of 3, %d×%d", i+1, out, in), normed*out, dst[1][i].F32, dst[0][i].F32)
	}
	b.equal(fmt.Sprintf("gated %d×%d", outs[1], in), normed*outs[1], gated[1][0].F32, gated[0][0].F32)
	b.checkHalves(normed*outs[1], gated[1][0])
}

// equal compares n numbers on the device with others.
func (b *projectBench) equal(what string, n int, got, want driver.Ptr) {
	if err := vectors.Equal(b.downloadF32(n, got), b.downloadF32(n, want)); err != nil {
		b.note(fmt.Errorf("%s, normed on the way: %w", what, err))
	}
}
