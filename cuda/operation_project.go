package cuda

import "windrow/cuda/driver"

// sameFormat reports whether two weights run in one launch.
func sameFormat(a, b *matrix) bool {
	return a.fast() == b.fast() && a.dt == b.dt && a.group == b.group
}

// gatedTogether reports whether gate and up run in one launch with the activation.
func gatedTogether(gate, up linear) bool {
	return sameFormat(gate.w, up.w) && gate.w.fast()
}

func readsOfWeights(_ *plan, o *op) (f form) {
	for _, w := range o.w[:o.n] {
		if w.w.fast() {
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
	n := 4 * y.shape.bucket * y.f.widths[o.dst[0]]
	return [3]int{n, n}
}

func prepareProject(f *forward, y *plan, a *action) (moved bool, err error) {
	if a.from[0].bf16 == 0 || y.decode && !y.wide {
		return false, nil
	}
	return f.b.device.prepareGEMM(a.w[:], y.shape.bucket)
}

func prepareProjectAdd(f *forward, y *plan, a *action) (moved bool, err error) {
	moved, err = prepareProject(f, y, a)
	if err == nil && a.w[0].w.partial {
		var also bool
		also, err = f.b.device.preparePartials(y.shape.bucket*a.to[0].width, y.decode)
		moved = moved || also
	}
	return moved, err
}

// target is where an operand's rows go.
func (o operand) target(add bool) target { return target{o.f32, o.bf16, add} }

// project enqueues up to three weights of one format. norm says how the only row
// of src is normed first, if at all.
func (b *Backend) project(y *plan, dst []operand, src operand, w []linear, norm driver.Ptr, eps float32, add bool) {
	var targets [3]target
	for i, o := range dst {
		targets[i] = o.target(add)
	}
	switch {
	case norm != 0:
		b.device.projectNormed(targets[:len(dst)], inputs{src.f32, norm, eps}, w, false)
	case y.decode && !y.wide:
		b.device.project(targets[:len(dst)], src.bf16, w, y.shape.bucket)
	default:
		b.device.prefillProject(targets[:len(dst)], src.bf16, w, y.shape.bucket)
	}
}

func (b *Backend) emitProject(y *plan, a *action) {
	for i := 0; i < a.n; {
		w := a.w[i].w
		if !w.fast() {
			b.device.simtProject(a.to[i].f32, a.from[0].f32, w, a.w[i].bias, false, y.shape.bucket)
			i++
			continue
		}
		j := i + 1
		for j < a.n && sameFormat(w, a.w[j].w) {
			j++
		}
		b.project(y, a.to[i:j], a.from[0], a.w[i:j], a.norm[0], a.eps, false)
		i = j
	}
}

func (b *Backend) emitProjectAdd(y *plan, a *action) {
	w, dst, n := a.w[0], a.to[0], y.shape.bucket*a.to[0].width
	to, add := dst, true
	if w.w.partial {
		to, add = operand{width: dst.width, f32: b.device.ownPartial(n, y.decode)}, false
	}
	if w.w.fast() {
		b.project(y, []operand{to}, a.from[0], a.w[:1], 0, 0, add)
	} else {
		b.device.simtProject(to.f32, a.from[0].f32, w.w, w.bias, add, y.shape.bucket)
	}
	if w.w.partial {
		b.device.joinPartials(dst.f32, n, y.decode)
	}
}

func (b *Backend) emitGated(y *plan, a *action) {
	d, bucket, dst := b.device, y.shape.bucket, a.to[0]
	if a.scratch[0] == 0 {
		switch {
		case a.norm[0] != 0:
			d.projectNormed([]target{dst.target(false)}, inputs{a.from[0].f32, a.norm[0], a.eps}, a.w[:2], true)
		case y.decode && !y.wide:
			d.projectGated(dst.target(false), a.from[0].bf16, a.w[0], a.w[1], bucket)
		default:
			d.prefillGated(dst.target(false), a.from[0].bf16, a.w[0], a.w[1], bucket)
		}
		return
	}
	for i, w := range a.w[:2] {
		if !w.w.fast() {
			d.simtProject(a.scratch[i], a.from[0].f32, w.w, w.bias, false, bucket)
			continue
		}
		b.project(y, []operand{{width: dst.width, f32: a.scratch[i]}}, a.from[0], a.w[i:i+1], 0, 0, false)
	}
	d.gatedAct(dst.f32, dst.bf16, a.scratch[0], a.scratch[1], false, bucket*dst.width)
}
