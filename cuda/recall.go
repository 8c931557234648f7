package cuda

import (
	"slices"

	"windrow/cuda/driver"
)

// recording is what a pass had recorded when it was first flushed, and what its
// plan left behind. A step mostly records what a step before it did; then that
// one's graph is launched without planning. Everything that a plan depends on is
// compared: the operations with their weights, the widths of the buffers, which
// are the same objects in every pass, the geometry, and the buffer that is read.
// Addresses cannot have moved: whatever moves them drops the recordings with the
// graphs.
type recording struct {
	geometry
	ops     []op
	want    *buffer
	buffers []buffer // as the plan left them
	arena   arenaMark
	logits  driver.Ptr
	graph   *driver.Graph
}

// maxRecordings: passes of a few row buckets alternate, and a context grows
// from bucket to bucket.
const maxRecordings = 8

// matches tells whether a pass that has not been flushed yet would be planned
// as this one was.
func (r *recording) matches(p *pass, want *buffer) bool {
	if r.geometry != p.plan.geometry || r.want != want || len(r.buffers) != p.used {
		return false
	}
	for i, b := range p.buffers[:p.used] {
		if b.width != r.buffers[i].width {
			return false
		}
	}
	return slices.Equal(r.ops, p.ops)
}

// recall returns the graph of an equal pass, and leaves buffers and arena as
// planning would have; nil where there was none.
func (p *pass) recall(want *buffer) *driver.Graph {
	if p.flushed { // buffers hold something already
		return nil
	}
	recent := p.b.graphs.recent
	for i, r := range recent {
		if !r.matches(p, want) {
			continue
		}
		copy(recent[1:], recent[:i])
		recent[0] = r
		for i, b := range p.buffers[:p.used] {
			*b = r.buffers[i]
		}
		p.b.arena.arenaMark = r.arena
		p.plan.actions, p.plan.logits = p.plan.actions[:0], r.logits
		return r.graph
	}
	return nil
}

// remember keeps what this pass has recorded, if it is its first flush, for
// recall.
func (p *pass) remember(want *buffer, graph *driver.Graph) {
	if p.flushed {
		return
	}
	g := &p.b.graphs
	if len(g.recent) < maxRecordings {
		g.recent = append(g.recent, new(recording))
	}
	n := len(g.recent) - 1
	r := g.recent[n]
	copy(g.recent[1:], g.recent[:n])
	g.recent[0] = r
	r.geometry, r.want, r.arena, r.logits, r.graph = p.plan.geometry, want, p.b.arena.arenaMark, p.plan.logits, graph
	r.ops = append(r.ops[:0], p.ops...)
	r.buffers = r.buffers[:0]
	for _, b := range p.buffers[:p.used] {
		r.buffers = append(r.buffers, *b)
	}
}
