package cuda

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"slices"

	"windrow/backend"
	"windrow/cuda/driver"
)

// flush runs what is recorded, and waits.
func (p *pass) flush() {
	if p.joint != nil {
		p.joint()
		return
	}
	p.flushWanting(nil)
}

// flushWanting runs what is recorded; the f32 form of buffer want is valid
// afterwards.
func (p *pass) flushWanting(want *buffer) {
	if p.err == nil && (len(p.ops) > 0 || want != nil) {
		p.b.device.ctx.Enter()
		p.err = p.run(want)
		p.b.device.ctx.Leave()
		p.done(want == nil)
	}
	p.forget()
}

// done notes a flush. The operations of the first one may be kept, where nothing
// was read.
func (p *pass) done(results bool) {
	p.ran = 0
	if results && !p.flushed && p.err == nil {
		p.ran = len(p.ops)
	}
	p.flushed = true
}

// run does what is recorded in the steps that a group of GPUs takes together.
func (p *pass) run(want *buffer) error {
	if err := p.begin(want); err != nil {
		return err
	}
	return p.wait()
}

// begin is run without the wait.
func (p *pass) begin(want *buffer) error {
	if err := p.settle(want); err != nil {
		return err
	}
	if err := p.capture(); err != nil {
		return err
	}
	return p.launch()
}

// settle plans, and makes room for what the plan needs: it queues nothing. What is
// kept may have its graph, and is not planned then.
func (p *pass) settle(want *buffer) error {
	// The weights are there: the uploader's threads and buffers have done their
	// work. A later weight starts them again.
	if err := p.b.uploader.Close(); err != nil {
		return err
	}
	p.plan.geometry = p.geometry(p.values.spans)
	p.graph, p.idle = p.recall(), false
	if p.graph != nil {
		return nil
	}
	if err := p.make(want); err != nil {
		return err
	}
	if p.idle = len(p.plan.actions) == 0; p.idle {
		return nil
	}
	return p.prepare()
}

// capture makes the graph of a decode pass that has none.
func (p *pass) capture() (err error) {
	if p.idle || p.graph != nil || !p.plan.decode {
		return nil
	}
	if p.graph, err = p.b.capture(&p.plan); err == nil {
		p.remember()
	}
	return err
}

// launch enqueues the plan, as its graph or, in prefill passes, its kernels one by
// one.
func (p *pass) launch() error {
	if p.idle {
		return nil
	}
	b := p.b
	p.values.write(b.step.host.Bytes(), p.plan.shape, b.step.device)
	at := p.plan.shape.layout().size
	for i, x := range p.host {
		binary.LittleEndian.PutUint32(b.step.host.Bytes()[at+4*i:], math.Float32bits(x))
	}
	if p.graph != nil {
		b.graphs.last = p.graph
		return p.graph.Launch(b.device.stream)
	}
	b.emit(&p.plan)
	return b.device.take()
}

// wait waits for what launch has enqueued. The driver spins: to block costs 40 µs a
// step, and to spin on a word that the device writes gains nothing.
func (p *pass) wait() error {
	if p.idle {
		return nil
	}
	return p.b.device.stream.Synchronize()
}

// prepare makes room for what the launches use besides the arena: it may
// allocate, which a capture may not.
func (p *pass) prepare() error {
	b, y := p.b, &p.plan
	grown := false
	room := func(x interface {
		grow(ctx *driver.Context, n int) (bool, error)
	}, n int) error {
		changed, err := x.grow(b.device.ctx, n)
		grown = grown || changed
		return err
	}
	if err := room(&b.step, y.shape.layout().size+y.host); err != nil {
		return err
	}
	longest := 1 // context that the storage takes, in chunks
	for _, s := range p.values.spans {
		longest = max(longest, powerOfTwo((s.KV.Layout().Slots+chunkSlots-1)/chunkSlots))
	}
	for i := range y.actions {
		a := &y.actions[i]
		var changed bool
		var err error
		switch a.kind {
		case opHead:
			_, out := statsBytes(a.w[0].w.out, y.head, y.top)
			if err = room(&b.results, out); err == nil && y.wideHead() && a.w[0].w.fast() {
				changed, err = b.device.prepareGEMM(a.w[:], y.head)
			}
		case opAttend:
			if a.src[0].bf16 != 0 && y.decode {
				changed, err = b.device.prepareAttend(y.shape.bucket, y.most, y.shape.spans, y.chunks, longest, a.src[0].width/y.kv.HeadDim, y.kv.HeadDim)
			}
		case opProject, opProjectAdd, opGated:
			if a.src[0].bf16 != 0 && (!y.decode || y.wide) {
				changed, err = b.device.prepareGEMM(a.w[:], y.shape.bucket)
			}
		}
		if err == nil && a.kind == opProjectAdd && a.w[0].w.partial {
			var moved bool
			moved, err = b.device.preparePartials(y.shape.bucket*a.dst[0].width, y.decode)
			changed = changed || moved
		}
		if err != nil {
			return err
		}
		grown = grown || changed
	}
	if grown {
		b.graphs.clear()
	}
	return nil
}

// graphs keeps the captured steps.
type graphs struct {
	entries map[uint64][]*captured
	seed    maphash.Seed
	count   int
	last    *driver.Graph // replayed
	clears  int           // how often all were dropped
}

// captured is the graph of a plan.
type captured struct {
	geometry
	actions []action
	graph   *driver.Graph
}

// maxGraphs bounds the captured steps; row and context buckets make a few dozen.
const maxGraphs = 256

func (g *graphs) clear() {
	for _, list := range g.entries {
		for _, c := range list {
			c.graph.Close()
		}
	}
	clear(g.entries)
	g.count = 0
	g.clears++
}

func (g *graphs) key(y *plan) uint64 {
	if g.entries == nil {
		g.entries, g.seed = map[uint64][]*captured{}, maphash.MakeSeed()
	}
	var h maphash.Hash
	h.SetSeed(g.seed)
	maphash.WriteComparable(&h, y.geometry)
	for i := range y.actions {
		maphash.WriteComparable(&h, y.actions[i])
	}
	return h.Sum64()
}

// capture returns the plan's graph, which it makes where the plan is new.
func (b *Backend) capture(y *plan) (*driver.Graph, error) {
	key := b.graphs.key(y)
	for _, c := range b.graphs.entries[key] {
		if c.geometry == y.geometry && slices.Equal(c.actions, y.actions) {
			return c.graph, nil
		}
	}
	if b.graphs.count >= maxGraphs {
		b.graphs.clear()
	}
	// Modules load while nothing is captured.
	if err := b.warm(y); err != nil {
		return nil, err
	}
	s := b.device.stream
	if err := s.BeginCapture(); err != nil {
		return nil, err
	}
	b.emit(y)
	graph, err := s.EndCapture()
	if failed := b.device.take(); failed != nil {
		if err == nil {
			graph.Close()
		}
		return nil, failed
	}
	if err != nil {
		return nil, err
	}
	b.graphs.entries[key] = append(b.graphs.entries[key], &captured{y.geometry, slices.Clone(y.actions), graph})
	b.graphs.count++
	return graph, nil
}

// read copies the f32 form of a buffer.
func (b *Backend) read(out []float32, buf *buffer) error {
	b.device.ctx.Enter()
	defer b.device.ctx.Leave()
	return b.device.downloadFloats(out, buf.f32)
}

// downloadFloats copies floats from the device, once its work is done.
func (d *device) downloadFloats(out []float32, from driver.Ptr) error {
	data := make([]byte, 4*len(out))
	if err := d.ctx.Download(data, from); err != nil {
		return err
	}
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return nil
}

var _ backend.Backend = (*Backend)(nil)
