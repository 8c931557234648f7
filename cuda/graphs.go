package cuda

import (
	"slices"

	"windrow/cuda/driver"
)

// graphs are the variants of all forwards of a backend, the last used first. What
// moves memory that graphs use drops them all.
type graphs struct {
	list  []*variant
	last  *driver.Graph   // launched
	parts []*driver.Graph // likewise, of a forward that has parts: all of them
}

// variant is the graph of a forward in one geometry.
type variant struct {
	f *forward
	geometry
	head  *action
	graph *driver.Graph
	parts []*driver.Graph // in place of graph, of a forward that has parts
}

func (v *variant) close() {
	for _, g := range v.parts {
		g.Close()
	}
	if v.graph != nil {
		v.graph.Close()
	}
}

// maxGraphs bounds them; row and context buckets make a few dozen.
const maxGraphs = 256

// find returns a forward's variant, or nil.
func (g *graphs) find(f *forward, y *geometry) *variant {
	for i, v := range g.list {
		if v.f == f && v.geometry == *y {
			copy(g.list[1:], g.list[:i])
			g.list[0] = v
			return v
		}
	}
	return nil
}

// add takes a variant, in place of the one that was not used for longest where there
// are too many.
func (g *graphs) add(v *variant) {
	if n := len(g.list); n == maxGraphs {
		g.list[n-1].close()
		g.list = g.list[:n-1]
	}
	g.list = slices.Insert(g.list, 0, v)
}

// drop closes the graphs of a forward, or, where it is nil, all.
func (g *graphs) drop(f *forward) {
	g.list = slices.DeleteFunc(g.list, func(v *variant) bool {
		if f != nil && v.f != f {
			return false
		}
		v.close()
		return true
	})
}

// capture makes the graph of a plan that has none.
func (f *forward) capture(y *plan) (*variant, error) {
	graph, err := f.b.captured(y, y.actions)
	if err != nil {
		return nil, err
	}
	v := &variant{f: f, geometry: y.geometry, head: y.headAction(), graph: graph}
	f.b.graphs.add(v)
	return v, nil
}

// captured is the graph of a plan's actions.
func (b *Backend) captured(y *plan, actions []action) (*driver.Graph, error) {
	// Modules load while nothing is captured.
	if err := b.warm(y, actions); err != nil {
		return nil, err
	}
	s := b.device.Stream
	if err := s.BeginCapture(); err != nil {
		return nil, err
	}
	b.emit(y, actions)
	graph, err := s.EndCapture()
	if failed := b.device.Take(); failed != nil {
		if err == nil {
			graph.Close()
		}
		return nil, failed
	}
	return graph, err
}
