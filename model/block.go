package model

import (
	"windrow/backend"
	"windrow/checkpoint"
)

// block is the weights of one kind of layer, or of a half of one.
type block interface {
	// load fetches them, in the layer that the loader is at. The architecture's
	// table says which tensors they are.
	load(l *loader)
	// list appends the operations of a layer to a forward's, and says what the layer
	// keeps of a token by the operations that store it.
	list(p *backend.Program, s *stream, layer int)
}

// layerBlock mixes rows, then works on each: both are added to their input.
type layerBlock struct{ mix, feed block }

// newLayer is the block of a layer.
func newLayer(c *checkpoint.Config, layer int) block {
	y := &layerBlock{mix: new(attentionBlock), feed: new(denseBlock)}
	if c.Recurrent(layer) {
		y.mix = new(deltaBlock)
	}
	if c.Sparse(layer) {
		y.feed = new(expertsBlock)
	}
	return y
}

func (y *layerBlock) load(l *loader) {
	y.mix.load(l)
	y.feed.load(l)
}

func (y *layerBlock) list(p *backend.Program, s *stream, layer int) {
	y.mix.list(p, s, layer)
	y.feed.list(p, s, layer)
}
