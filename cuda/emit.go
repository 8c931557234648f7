package cuda

import (
	"windrow/cuda/driver"
)

// warm loads the modules of a plan's kernels: nothing may be loaded while a
// capture is under way.
func (b *Backend) warm(y *plan) error {
	b.device.dry = true
	b.emit(y)
	b.device.dry = false
	return b.device.take()
}

// emit enqueues a plan: the step block, and one or a few kernels an action. The
// last ones write the row results to the host.
func (b *Backend) emit(y *plan) {
	d := b.device
	d.copyIn(b.step.device, b.step.host, y.shape.layout().size+y.host)
	for i := range y.actions {
		a := &y.actions[i]
		switch a.kind {
		case opProject:
			b.emitProject(y, a)
		case opProjectAdd:
			b.emitProjectAdd(y, a)
		case opGated:
			b.emitGated(y, a)
		case opHead:
			b.emitHead(y, a)
		default:
			b.emitRows(y, a)
		}
	}
}

// emitRows enqueues the operations that are not products with weights.
func (b *Backend) emitRows(y *plan, a *action) {
	d, bucket, step := b.device, y.shape.bucket, b.step.device
	dst, src := a.dst[0], a.src[0]
	switch a.kind {
	case opEmbed:
		d.embed(dst.f32, a.w[0].w.raw, a.w[0].w.dt, dst.width, step, bucket)
	case opEmbedHost:
		d.copy(dst.f32, step+driver.Ptr(y.shape.layout().size), y.host)
	case opRMSNorm:
		d.rmsNorm(dst.f32, dst.bf16, src.f32, a.norm[0], src.width, bucket, a.eps)
	case opConvert:
		if dst.bf16 != 0 {
			d.toBF16(dst.bf16, src.f32, bucket*src.width)
		} else {
			d.toF32(dst.f32, src.bf16, bucket*src.width)
		}
	case opRotate:
		d.rotateStore(src.f32, a.src[1].f32, a.src[2].f32, dst.bf16, rotation{
			qHeads: src.width / y.kv.HeadDim, kvHeads: y.kv.KVHeads, dim: y.kv.HeadDim,
			qNorm: a.norm[0], kNorm: a.norm[1], eps: a.eps, kv: y.kv.DType, layers: y.kv.Layers, narrowOnly: dst.f32 == 0,
		}, step, a.layer, bucket)
	case opAttend:
		at := attentionOf(src.width, y.kv, a.scale)
		switch {
		case src.bf16 == 0:
			d.simtAttend(dst.f32, src.f32, at, step, a.layer, bucket)
		case y.wide && d.flashes(at, y.shape.spans):
			d.attendFlash(flashGrouped(), dst.f32, dst.bf16, src.bf16, at, step, a.layer, bucket, y.shape.spans, y.most)
		case y.decode:
			d.attendDecode(dst.f32, dst.bf16, src.bf16, at, step, a.layer, bucket, y.most, y.shape.spans, y.chunks)
		default:
			d.attendPrefill(dst.f32, dst.bf16, src.bf16, at, step, a.layer, bucket, y.shape.spans, y.most)
		}
	}
}

// wideHead tells whether the head is made as a prefill's product.
func (g *geometry) wideHead() bool { return g.wide && g.head > invariantRows }

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
			b.device.simtProject(a.dst[i].f32, a.src[0].f32, w, a.w[i].bias, false, y.shape.bucket)
			i++
			continue
		}
		j := i + 1
		for j < a.n && sameFormat(w, a.w[j].w) {
			j++
		}
		b.project(y, a.dst[i:j], a.src[0], a.w[i:j], a.norm[0], a.eps, false)
		i = j
	}
}

func (b *Backend) emitProjectAdd(y *plan, a *action) {
	w, dst, n := a.w[0], a.dst[0], y.shape.bucket*a.dst[0].width
	to, add := dst, true
	if w.w.partial {
		to, add = operand{width: dst.width, f32: b.device.ownPartial(n, y.decode)}, false
	}
	if w.w.fast() {
		b.project(y, []operand{to}, a.src[0], a.w[:1], 0, 0, add)
	} else {
		b.device.simtProject(to.f32, a.src[0].f32, w.w, w.bias, add, y.shape.bucket)
	}
	if w.w.partial {
		b.device.joinPartials(dst.f32, n, y.decode)
	}
}

func (b *Backend) emitGated(y *plan, a *action) {
	d, bucket, dst := b.device, y.shape.bucket, a.dst[0]
	if a.scratch[0] == 0 {
		switch {
		case a.norm[0] != 0:
			d.projectNormed([]target{dst.target(false)}, inputs{a.src[0].f32, a.norm[0], a.eps}, a.w[:2], true)
		case y.decode && !y.wide:
			d.projectGated(dst.target(false), a.src[0].bf16, a.w[0], a.w[1], bucket)
		default:
			d.prefillGated(dst.target(false), a.src[0].bf16, a.w[0], a.w[1], bucket)
		}
		return
	}
	for i, w := range a.w[:2] {
		if !w.w.fast() {
			d.simtProject(a.scratch[i], a.src[0].f32, w.w, w.bias, false, bucket)
			continue
		}
		b.project(y, []operand{{width: dst.width, f32: a.scratch[i]}}, a.src[0], a.w[i:i+1], 0, 0, false)
	}
	d.gatedAct(dst.f32, dst.bf16, a.scratch[0], a.scratch[1], false, bucket*dst.width)
}

// emitHead enqueues the final norm of the wanted rows, the head, and the
// statistics of the logits.
func (b *Backend) emitHead(y *plan, a *action) {
	d, w, src := b.device, a.w[0], a.src[0]
	switch {
	case w.w.fast() && y.shape.bucket == 1 && d.takesNorm(a.w[:1]): // the only row is the wanted one
		d.projectNormed([]target{{f32: a.scratch[1]}}, inputs{src.f32, a.norm[0], a.eps}, a.w[:1], false)
	case w.w.fast():
		d.rmsNormWanted(0, a.scratch[0], src.f32, a.norm[0], src.width, y.head, a.eps, b.step.device)
		logits := []target{{f32: a.scratch[1]}}
		if y.wideHead() {
			d.prefillProject(logits, a.scratch[0], a.w[:1], y.head)
		} else {
			d.project(logits, a.scratch[0], a.w[:1], y.head)
		}
	default:
		d.rmsNormWanted(a.scratch[0], 0, src.f32, a.norm[0], src.width, y.head, a.eps, b.step.device)
		d.simtProject(a.scratch[1], a.scratch[0], w.w, 0, false, y.head)
	}
	d.rowStats(b.results.host.Address(), a.scratch[1], w.w.out, y.head, y.top, b.step.device, a.scratch[2])
}
