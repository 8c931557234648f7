package driver

import (
	"fmt"
	"unsafe"
)

// Graph is recorded work of a stream, which one call queues again.
type Graph struct {
	ctx    *Context
	handle uintptr // CUgraphExec
	nodes  int
	launch [2]uintptr
}

// captureRelaxed lets the capturing thread load modules and allocate meanwhile.
const captureRelaxed = 2

// BeginCapture makes the stream record what is queued on it, instead of doing
// it, until EndCapture.
func (s *Stream) BeginCapture() error {
	if s.handle == 0 {
		return errClosed
	}
	if err := s.ctx.api.call(&s.ctx.api.beginCapture, s.handle, captureRelaxed); err != nil {
		return s.ctx.wrap(err)
	}
	s.capturing, s.captured = true, 0
	return nil
}

// EndCapture ends the recording and makes a graph of it. After an error the
// stream no longer records.
func (s *Stream) EndCapture() (*Graph, error) {
	if s.handle == 0 {
		return nil, errClosed
	}
	a := s.ctx.api
	s.capturing = false
	var graph uintptr
	if err := a.call(&a.endCapture, s.handle, uintptr(unsafe.Pointer(&graph))); err != nil {
		return nil, s.ctx.wrap(err)
	}
	defer a.call(&a.graphDestroy, graph)
	g := &Graph{ctx: s.ctx, nodes: s.captured}
	if a.graphNodes.address != 0 {
		var n uint64
		if a.call(&a.graphNodes, graph, 0, uintptr(unsafe.Pointer(&n))) == nil {
			g.nodes = int(n)
		}
	}
	if err := a.call(&a.instantiate, uintptr(unsafe.Pointer(&g.handle)), graph, 0); err != nil {
		return nil, fmt.Errorf("cuda: graph of %d nodes: %w", g.nodes, err)
	}
	g.launch[0] = g.handle
	keep(s.ctx, s.ctx.graphs, g)
	return g, nil
}

// Launch queues the whole graph. It allocates nothing.
func (g *Graph) Launch(s *Stream) error {
	if g.handle == 0 || s.handle == 0 {
		return errClosed
	}
	g.launch[1] = s.handle
	return s.queued(&g.ctx.api.graphLaunch, g.launch[:])
}

// Upload queues what the first launch would do before its work: it may wait for
// other devices, where work that depends on others may not be under way.
func (g *Graph) Upload(s *Stream) error {
	if g.handle == 0 || s.handle == 0 {
		return errClosed
	}
	return g.ctx.wrap(g.ctx.api.call(&g.ctx.api.graphUpload, g.handle, s.handle))
}

// Nodes is the number of operations in the graph.
func (g *Graph) Nodes() int { return g.nodes }

// Close destroys the graph; what is queued of it still runs.
func (g *Graph) Close() error {
	if !drop(g.ctx, g.ctx.graphs, g) {
		return nil
	}
	handle := g.handle
	g.handle = 0
	return g.ctx.wrap(g.ctx.api.call(&g.ctx.api.graphExecDestroy, handle))
}
