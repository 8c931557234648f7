package cuda

import (
	"windrow/cuda/driver"
	"windrow/cuda/launch"
)

// sameFormat reports whether two weights run in one launch.
func sameFormat(a, b *launch.Weight) bool {
	return a.Fast() == b.Fast() && a.DType == b.DType && a.Group == b.Group
}

// gatedTogether reports whether gate and up run in one launch with the activation.
func gatedTogether(gate, up launch.Linear) bool {
	return sameFormat(gate.Weight, up.Weight) && gate.Weight.Fast()
}

func readsOfWeights(_ *plan, o *op) (f form) {
	for _, w := range o.w[:o.n] {
		if w.Weight.Fast() {
			f |= asBF16
		} else {
			f |= asF32
		}
	}
	return f
}

func writesOfGated(_ *plan, o *op, wanted form) form {
	if gatedTogether(o.w[0], o.w[1]) {
		return wanted
	}
	return asF32 | wanted&asBF16 // the activation kernel writes both
}

// scratchOfGated is room for the halves.
func scratchOfGated(y *plan, o *op) [3]int {
	if gatedTogether(o.w[0], o.w[1]) {
		return [3]int{}
	}
	n := 4 * y.shape.Bucket * y.f.widths[o.dst[0]]
	return [3]int{n, n}
}

// prefillRows are those of a pass as projections of prefill take them.
func (y *plan) prefillRows() launch.Rows {
	return launch.Rows{Count: y.shape.Bucket, Prompt: y.prompt}
}

func prepareProject(f *forward, y *plan, a *action) (moved bool, err error) {
	if a.from[0].bf16 == 0 || y.decode && !y.wide {
		return false, nil
	}
	for i := 0; i < a.n && err == nil; {
		j := i + 1
		if a.w[i].Weight.Fast() {
			j = a.sameFrom(i)
			var also bool
			also, err = f.b.device.PrepareGEMM(a.w[i:j], y.prefillRows())
			moved = moved || also
		}
		i = j
	}
	return moved, err
}

// sameFrom is the end of the weights from i on that have the format of the i-th, and share a launch.
func (a *action) sameFrom(i int) int {
	j := i + 1
	for j < a.n && sameFormat(a.w[i].Weight, a.w[j].Weight) {
		j++
	}
	return j
}

func prepareProjectAdd(f *forward, y *plan, a *action) (moved bool, err error) {
	moved, err = prepareProject(f, y, a)
	if err == nil && a.w[0].Weight.Partial {
		var also bool
		also, err = f.b.device.PreparePartials(y.shape.Bucket*a.to[0].width, y.decode)
		moved = moved || also
	}
	return moved, err
}

// target is where an operand's rows go.
func (o operand) target(add bool) launch.Target {
	return launch.Target{F32: o.f32, BF16: o.bf16, Add: add}
}

// project enqueues up to three weights of one format. norm says how the rows
// of src are normed first, if at all.
func (b *Backend) project(y *plan, dst []operand, src operand, w []launch.Linear, norm driver.Ptr, eps float32, add bool) {
	var targets [3]launch.Target
	for i, o := range dst {
		targets[i] = o.target(add)
	}
	switch {
	case norm != 0:
		b.device.ProjectNormed(targets[:len(dst)], launch.Inputs{X: src.f32, Norm: norm, Eps: eps}, w, false, y.shape.Bucket)
	case y.decode && !y.wide:
		b.device.Project(targets[:len(dst)], src.bf16, w, y.shape.Bucket)
	default:
		b.device.PrefillProject(targets[:len(dst)], src.bf16, w, y.prefillRows())
	}
}

func (b *Backend) emitProject(y *plan, a *action) {
	for i := 0; i < a.n; {
		w := a.w[i].Weight
		if !w.Fast() {
			b.device.SIMTProject(a.to[i].f32, a.from[0].f32, w, a.w[i].Bias, false, y.shape.Bucket)
			i++
			continue
		}
		j := a.sameFrom(i)
		b.project(y, a.to[i:j], a.from[0], a.w[i:j], a.norm[0], a.eps, false)
		i = j
	}
}

func (b *Backend) emitProjectAdd(y *plan, a *action) {
	w, dst, n := a.w[0], a.to[0], y.shape.Bucket*a.to[0].width
	to, add := dst, true
	if w.Weight.Partial {
		to, add = operand{width: dst.width, f32: b.device.OwnPartial(n, y.decode)}, false
	}
	if w.Weight.Fast() {
		b.project(y, []operand{to}, a.from[0], a.w[:1], 0, 0, add)
	} else {
		b.device.SIMTProject(to.f32, a.from[0].f32, w.Weight, w.Bias, add, y.shape.Bucket)
	}
	if w.Weight.Partial {
		b.device.JoinPartials(dst.f32, n, y.decode)
	}
}

func (b *Backend) emitGated(y *plan, a *action) {
	d, bucket, dst := b.device, y.shape.Bucket, a.to[0]
	if a.scratch[0] == 0 {
		switch {
		case a.norm[0] != 0:
			d.ProjectNormed([]launch.Target{dst.target(false)}, launch.Inputs{X: a.from[0].f32, Norm: a.norm[0], Eps: a.eps}, a.w[:2], true, bucket)
		case y.decode && !y.wide:
			d.ProjectGated(dst.target(false), a.from[0].bf16, a.w[0], a.w[1], bucket)
		default:
			d.PrefillGated(dst.target(false), a.from[0].bf16, a.w[0], a.w[1], y.prefillRows())
		}
		return
	}
	for i, w := range a.w[:2] {
		if !w.Weight.Fast() {
			d.SIMTProject(a.scratch[i], a.from[0].f32, w.Weight, w.Bias, false, bucket)
			continue
		}
		b.project(y, []operand{{width: dst.width, f32: a.scratch[i]}}, a.from[0], a.w[i:i+1], 0, 0, false)
	}
	d.GatedAct(dst.f32, dst.bf16, a.scratch[0], a.scratch[1], false, bucket*dst.width)
}
