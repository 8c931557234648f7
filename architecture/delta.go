package architecture

import "windrow/backend"

// DeltaNet is the shape of gated DeltaNet layers (arXiv 2412.06464): linear
// attention whose memory of a sequence is a matrix [KeyDim, ValueDim] for each
// value head.
type DeltaNet struct {
	KeyHeads   int // of queries and keys
	ValueHeads int // a multiple of KeyHeads
	KeyDim     int // of a head of queries or keys
	ValueDim   int // of a head of values
	Conv       int // rows that the convolution sees, the last one included: 2 to 8
	// Layers are those that are such layers, from 0 on; the others have attention.
	Layers []bool
	// Tiled says which key head a value head has: see KeyHead. GGUF files of
	// Qwen3.5 are so, in every tensor with value heads.
	Tiled bool
}

// KeyHead is the key head that a value head has: of several value heads of one
// key head one follows the other, or they lie KeyHeads apart.
func (d *DeltaNet) KeyHead(valueHead int) int {
	if d.Tiled {
		return valueHead % d.KeyHeads
	}
	return valueHead / (d.ValueHeads / d.KeyHeads)
}

// Keys and Values are the widths of all heads of keys (as wide: of queries) and
// of values.
func (d *DeltaNet) Keys() int   { return d.KeyHeads * d.KeyDim }
func (d *DeltaNet) Values() int { return d.ValueHeads * d.ValueDim }

// Channels is the width of the convolution: queries, keys, values.
func (d *DeltaNet) Channels() int { return 2*d.Keys() + d.Values() }

// Shape is the layer as backends have it.
func (d *DeltaNet) Shape() backend.StateShape {
	return backend.StateShape{KeyHeads: d.KeyHeads, ValueHeads: d.ValueHeads, KeyDim: d.KeyDim, ValueDim: d.ValueDim, Conv: d.Conv, Tiled: d.Tiled}
}

// DefaultStepRows are two windows of 16: what a step may feed that checks one and drafts
// another.
const DefaultStepRows = 32

// StepRows is how many rows of a step may be taken back where layers have a state:
// DefaultStepRows with a mask token, half of them without (mask is negative), for what a
// constraint forces, and a short way back. Each takes memory (Config.SequenceBytes).
func StepRows(mask int32) int {
	if mask < 0 {
		return DefaultStepRows / 2
	}
	return DefaultStepRows
}

// StateBytes is what a step reads of one sequence in one layer, in f32: the matrices, and
// the rows before its convolution's next one.
func (d *DeltaNet) StateBytes() int64 {
	return 4 * (int64(d.Values())*int64(d.KeyDim) + int64(d.Conv-1)*int64(d.Channels()))
}

// Interleaved marks the layers that are none of every interval-th.
func Interleaved(layers, interval int) []bool {
	list := make([]bool, layers)
	for i := range list {
		list[i] = (i+1)%interval != 0
	}
	return list
}

// Recurrent reports whether a layer is a gated DeltaNet in place of attention.
func (c *Config) Recurrent(layer int) bool {
	return c.Delta != nil && layer >= 0 && layer < len(c.Delta.Layers) && c.Delta.Layers[layer]
}

// RecurrentLayers is how many layers are gated DeltaNets.
func (c *Config) RecurrentLayers() (n int) {
	for layer := range c.Layers {
		if c.Recurrent(layer) {
			n++
		}
	}
	return n
}

// SequenceBytes is what the recurrent layers take of one sequence, of any length, where so
// many rows of a step may be taken back; 0 where there are none. A prompt of more than one
// forward takes twice that while it is computed.
func (c *Config) SequenceBytes(stepRows int) int64 {
	if c.Delta == nil {
		return 0
	}
	return int64(c.RecurrentLayers()) * c.Delta.Shape().Bytes(stepRows)
}

// StateBytes is what a step reads of the states of one sequence, of any length;
// 0 where there are none.
func (c *Config) StateBytes() int64 {
	if c.Delta == nil {
		return 0
	}
	return int64(c.RecurrentLayers()) * c.Delta.StateBytes()
}
