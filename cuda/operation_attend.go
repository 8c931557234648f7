package cuda

import "windrow/backend"

func (b *Backend) emitRotate(y *plan, a *action) {
	q, k, v, to := a.from[0], a.from[1], a.from[2], a.to[0]
	b.device.rotateStore(q.f32, k.f32, v.f32, to.bf16, rotation{
		qHeads: q.width / a.dim, kvHeads: a.kvHeads, dim: a.dim, pairs: a.angles.Pairs(), angles: a.angles.list,
		qNorm: a.norm[0], kNorm: a.norm[1], eps: a.eps, kv: y.kv.DType, layers: y.kv.Layers, narrowOnly: to.f32 == 0,
	}, b.step.device, a.layer, y.shape.bucket)
}

// attention is the shape of an attention over the storage of a forward.
func (y *plan) attention(o *op, width int) attention {
	return attention{qHeads: width / o.dim, kvHeads: o.kvHeads, dim: o.dim, scale: o.scale, kv: y.kv.DType, layers: y.kv.Layers}
}

func (y *plan) attendFast(o *op) bool {
	return !y.f.b.exact && attendTakes(y.attention(o, y.f.widths[o.src[0]]))
}

func readsOfAttend(y *plan, o *op) form {
	if y.attendFast(o) {
		return asBF16
	}
	return asF32
}

func writesOfAttend(y *plan, o *op, wanted form) form {
	if y.attendFast(o) {
		return wanted
	}
	return asF32
}

func prepareAttend(f *forward, y *plan, a *action) (moved bool, err error) {
	if a.from[0].bf16 == 0 || !y.decode {
		return false, nil
	}
	longest := 1 // context that the storage takes, in chunks
	for _, s := range f.values.spans {
		longest = max(longest, powerOfTwo(ceil(s.Storage.Layout().Slots, chunkSlots)))
	}
	return f.b.device.prepareAttend(y.shape.bucket, y.most, y.shape.spans, y.chunks, longest, a.from[0].width/a.dim, a.dim)
}

// attendRoom is the room for attention that an action takes.
func (y *plan) attendRoom(a *action) int {
	if a.kind != opAttend || a.from[0].bf16 == 0 {
		return 0
	}
	return y.f.b.device.attendPartsRoom(y.shape.bucket, y.most, y.shape.spans, y.chunks, a.from[0].width/a.dim, a.dim)
}

func (b *Backend) emitAttend(y *plan, a *action) {
	d, step, bucket, to, q := b.device, b.step.device, y.shape.bucket, a.to[0], a.from[0]
	at := y.attention(&a.op, q.width)
	switch {
	case q.bf16 == 0:
		d.simtAttend(to.f32, q.f32, at, step, a.layer, bucket)
	case y.wide && d.flashes(at, y.shape.spans):
		d.attendFlash(flashGrouped(), to.f32, to.bf16, q.bf16, at, step, a.layer, bucket, y.shape.spans, y.most)
	case y.decode:
		d.attendDecode(to.f32, to.bf16, q.bf16, at, step, a.layer, bucket, y.most, y.shape.spans, y.chunks)
	default:
		d.attendPrefill(to.f32, to.bf16, q.bf16, at, step, a.layer, bucket, y.shape.spans, y.most)
	}
}

// slotsOf is how many slots of its storage a span's rows may see.
func slotsOf(s backend.Span) int {
	n := s.Base + s.Rows
	if l := s.Storage.(*storage).layout; l.Window != 0 {
		n = min(n, l.Slots)
	}
	return n
}
