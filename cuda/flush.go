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
func (p *pass) flush() { p.flushWanting(nil) }

// flushWanting runs what is recorded; the f32 form of buffer want is valid
// afterwards.
func (p *pass) flushWanting(want *buffer) {
	if p.err == nil && (len(p.ops) > 0 || want != nil) {
		p.b.device.ctx.Enter()
		p.err = p.run(want)
		p.b.device.ctx.Leave()
		p.flushed = true
	}
	p.forget()
}

func (p *pass) run(want *buffer) error {
	b := p.b
	// The weights are there: the uploader's threads and buffers have done their
	// work. A later weight starts them again.
	if err := b.uploader.Close(); err != nil {
		return err
	}
	p.plan.geometry = p.geometry()
	graph := p.recall(want)
	if graph == nil {
		if err := p.make(want); err != nil {
			return err
		}
		if len(p.plan.actions) == 0 {
			return nil
		}
		if err := p.prepare(); err != nil {
			return err
		}
	}
	p.values.write(b.step.host.Bytes(), p.plan.shape, b.step.device)
	at := p.plan.shape.layout().size
	for i, x := range p.host {
		binary.LittleEndian.PutUint32(b.step.host.Bytes()[at+4*i:], math.Float32bits(x))
	}
	if err := p.launch(graph, want); err != nil {
		return err
	}
	return b.device.stream.Synchronize()
}

// launch enqueues the plan: its graph, which is captured where it is nil, or, in
// prefill passes, its kernels one by one.
func (p *pass) launch(graph *driver.Graph, want *buffer) (err error) {
	b := p.b
	if !p.plan.decode {
		b.emit(&p.plan)
		return b.device.take()
	}
	if graph == nil {
		if graph, err = b.capture(&p.plan); err != nil {
			return err
		}
		p.remember(want, graph)
	}
	b.graphs.nodes = graph.Nodes()
	return graph.Launch(b.device.stream)
}

// prepare makes room for what the launches use besides the arena: it may
// allocate, which a capture may not.
func (p *pass) prepare() error {
	b, y := p.b, &p.plan
	grown := false
	room := func(x *exchange, n int) error {
		changed, err := x.grow(b.device.ctx, n)
		grown = grown || changed
		return err
	}
	if err := room(&b.step, y.shape.layout().size+y.host); err != nil {
		return err
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
				changed, err = b.device.prepareAttend(y.shape.bucket, y.shape.spans, y.chunks, a.src[0].width/y.kv.HeadDim, y.kv.HeadDim)
			}
		case opProject, opProjectAdd, opGated:
			if a.src[0].bf16 != 0 && (!y.decode || y.wide) {
				changed, err = b.device.prepareGEMM(a.w[:], y.shape.bucket)
			}
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
	nodes   int          // of the graph replayed last
	recent  []*recording // the newest first
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
	g.count, g.recent = 0, nil
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
	return b.download(out, buf.f32)
}

// download copies floats from the device.
func (b *Backend) download(out []float32, from driver.Ptr) error {
	data := make([]byte, 4*len(out))
	if err := b.device.ctx.Download(data, from); err != nil {
		return err
	}
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return nil
}

var _ backend.Backend = (*Backend)(nil)
