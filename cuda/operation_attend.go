package cuda

import (
	"slices"

	"windrow/cuda/launch"
)

func (b *Backend) emitRotate(y *plan, a *action) {
	q, k, v, to := a.from[0], a.from[1], a.from[2], a.to[0]
	h := y.rotation(a, q.width/a.stride())
	h.NarrowOnly = to.f32 == 0
	b.device.RotateStore(q.f32, k.f32, v.f32, to.bf16, h, b.step.Device, a.layer, y.shape.Bucket)
}

// rotation is what an action rotates: so many heads of queries.
func (y *plan) rotation(a *action, heads int) launch.Rotation {
	return launch.Rotation{
		QHeads: heads, Gated: a.gated, KVHeads: a.kvHeads, Dim: a.dim, Pairs: a.angles.Pairs(), Angles: a.angles.Table(),
		QNorm: a.norm[0], KNorm: a.norm[1], Eps: a.eps, KV: y.kv.DType, Layers: y.kv.Layers,
	}
}

// joinsRotation reports whether attention rotates the queries of its rows and stores their
// keys and values.
func (y *plan) joinsRotation(rotate, o *op) bool {
	at := y.attention(o)
	return rotate.kind == opRotate && rotate.dst[0] == o.src[0] && rotate.layer == o.layer && rotate.gated == o.gated &&
		!slices.Contains(rotate.src, o.dst[0]) && y.buffers[o.src[0]].want == 0 && y.decode && !y.wide && y.attendFast(o) &&
		y.f.b.device.TakesFresh(at, y.rotation(&action{op: *rotate}, at.QHeads), y.most, y.shape.Spans, y.chunks)
}

// stride is how far apart heads of queries lie.
func (o *op) stride() int {
	if o.gated {
		return 2 * o.dim
	}
	return o.dim
}

// attention is the shape of an attention over the storage of a forward.
func (y *plan) attention(o *op) launch.Attention {
	heads := y.f.widths[o.dst[0]] / o.dim
	return launch.Attention{QHeads: heads, KVHeads: o.kvHeads, Dim: o.dim, Scale: o.scale, KV: y.kv.DType, Layers: y.kv.Layers, Gated: o.gated}
}

func (y *plan) attendFast(o *op) bool {
	return !y.f.b.exact && y.f.b.device.AttendTakes(y.attention(o))
}

// readsOfAttend: gates are read in f32, queries as the kernel takes them.
func readsOfAttend(y *plan, o *op) form {
	switch {
	case !y.attendFast(o):
		return asF32
	case o.gated:
		return asF32 | asBF16
	}
	return asBF16
}

func writesOfAttend(y *plan, o *op, wanted form) form {
	if y.attendFast(o) {
		return wanted
	}
	return asF32
}

// inParts reports whether the kernels of an attention may split the context: those that
// take queries in bf16, or make these.
func (a *action) inParts() bool { return a.from[0].bf16 != 0 || a.angles != nil }

func prepareAttend(f *forward, y *plan, a *action) (moved bool, err error) {
	if !a.inParts() || !y.decode {
		return false, nil
	}
	longest := 1 // context that the storage takes, in chunks
	for _, s := range f.values.Spans {
		longest = max(longest, launch.PowerOfTwo(launch.Ceil(s.Storage.Layout().Slots, launch.ChunkSlots)))
	}
	return f.b.device.PrepareAttend(y.shape.Bucket, y.most, y.shape.Spans, y.chunks, longest, a.to[0].width/a.dim, a.dim)
}

// attendRoom is the room for attention that an action takes.
func (y *plan) attendRoom(a *action) int {
	if a.kind != opAttend || !a.inParts() {
		return 0
	}
	return y.f.b.device.AttendPartsRoom(y.shape.Bucket, y.most, y.shape.Spans, y.chunks, a.to[0].width/a.dim, a.dim)
}

func (b *Backend) emitAttend(y *plan, a *action) {
	d, step, bucket, to, q := b.device, b.step.Device, y.shape.Bucket, a.to[0], a.from[0]
	at := y.attention(&a.op)
	gates := q.f32
	if !a.gated {
		gates = 0
	}
	switch {
	case a.angles != nil:
		d.AttendFresh(to.f32, to.bf16, q.f32, a.from[1].f32, a.from[2].f32, at, y.rotation(a, at.QHeads), step, a.layer, bucket, y.most, y.shape.Spans, y.chunks)
	case q.bf16 == 0:
		d.SIMTAttend(to.f32, q.f32, at, step, a.layer, bucket)
	case y.wide && d.Flashes(at, y.shape.Spans):
		d.AttendGrouped(to.f32, to.bf16, q.bf16, at, step, a.layer, bucket, y.shape.Spans, y.most)
	case y.decode:
		d.AttendDecode(to.f32, to.bf16, q.bf16, gates, at, step, a.layer, bucket, y.most, y.shape.Spans, y.chunks)
	default:
		d.AttendPrefill(to.f32, to.bf16, q.bf16, gates, at, step, a.layer, bucket, y.shape.Spans, y.most)
	}
}
