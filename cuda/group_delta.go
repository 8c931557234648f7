package cuda

import (
	"slices"

	"windrow/backend"
)

// delta is gated DeltaNet of the key heads that each GPU has, with all of their value
// heads: what lies by heads is cut, and the states are by heads as well.
func (c *cutter) delta(o *backend.Op) {
	d, split := o.Delta, c.buffers[o.Src[0]].split
	for _, b := range o.Src {
		if c.buffers[b].split != split || c.buffers[b].copied() {
			c.fail("delta: what it takes is not cut alike")
			return
		}
	}
	if !c.storesBy("delta", o.Layer, split) {
		return
	}
	if split && d.KeyHeads%len(c.parts) != 0 {
		c.fail("delta: %d key heads over %d GPUs", d.KeyHeads, len(c.parts))
		return
	}
	// Value heads of one key head follow each other, or lie in runs of all key heads.
	runs := 1
	if d.Tiled {
		runs = d.Group()
	}
	of := func(width int) []int {
		list := make([]int, runs)
		for i := range list {
			list[i] = d.ValueHeads / runs * width
		}
		return list
	}
	keys := d.Keys() * d.Conv
	taps := c.alongHeads("taps", d.Taps, split, append([]int{keys, keys}, of(d.ValueDim*d.Conv)...))
	decay := c.alongHeads("decays", d.LogDecay, split, of(1))
	step := c.alongHeads("time steps", d.TimeStep, split, of(1))
	norm := c.alongHeads("norm", d.Norm, false, nil)
	if c.err != nil {
		return
	}
	y := *d
	y.StateShape = shareOfState(d.StateShape, split, len(c.parts))
	at := [6]*backend.Strided{&y.Q, &y.K, &y.V, &y.Z, &y.B, &y.A}
	if split {
		width := d.Group() * d.ValueDim
		for i, run := range [6]int{d.KeyDim, d.KeyDim, width, width, d.Group(), d.Group()} {
			of := 1
			if i > 1 {
				of = runs
			}
			if !c.shareOfHeads(at[i], run, d.KeyHeads, of) {
				c.fail("delta: columns %d, %d and on of a buffer that is not cut by heads", at[i].First, at[i].First+at[i].Stride)
				return
			}
		}
	}
	dst := o.Dst[0]
	for i, p := range c.parts {
		part := y
		for k, s := range [6]*backend.Strided{&part.Q, &part.K, &part.V, &part.Z, &part.B, &part.A} {
			s.Buffer = c.on(i, at[k].Buffer)
		}
		part.Taps, part.LogDecay, part.TimeStep, part.Norm = taps.parts[i], decay.parts[i], step.parts[i], norm.parts[i]
		if split {
			c.inParts(i, dst, part.Values(), several(of(d.ValueDim)))
		} else {
			c.isWhole(dst)
		}
		p.Delta(c.on(i, dst), part, o.Layer)
	}
}

// several is a list of runs as weights have it: nil where there is one.
func several(runs []int) []int {
	if len(runs) == 1 {
		return nil
	}
	return runs
}

// alongHeads is a vector of the group's that is cut in those runs, or is whole.
func (c *cutter) alongHeads(what string, x backend.Vector, split bool, runs []int) *groupVector {
	v := c.vector(x)
	if v == nil {
		return nil
	}
	if split != (v.split == backend.SplitOutputs) || split && !slices.Equal(v.runs, several(runs)) || v.copies > 1 {
		c.fail("delta: %s that are not cut as heads are", what)
	}
	return v
}

// shareOfHeads makes s, where a part of each key head lies, of a whole buffer's columns
// those of a GPU's share. The heads have that many runs of the buffer to themselves, or a
// place in each stride of one.
func (c *cutter) shareOfHeads(s *backend.Strided, part, heads, runs int) bool {
	b := &c.buffers[s.Buffer]
	list, at := b.runs, 0
	if list == nil {
		list = []int{b.width}
	}
	for len(list) > 0 && at+list[0] <= s.First {
		at, list = at+list[0], list[1:]
	}
	if len(list) < runs || s.First-at+part > s.Stride {
		return false
	}
	for _, run := range list[:runs] {
		if run*runs != heads*s.Stride {
			return false
		}
	}
	s.First -= at - at/len(c.parts)
	return true
}

// shareOfState is what one of n GPUs has of a state.
func shareOfState(s backend.StateShape, split bool, n int) backend.StateShape {
	if split {
		s.KeyHeads, s.ValueHeads = s.KeyHeads/n, s.ValueHeads/n
	}
	return s
}

// headsOn is how many of the KV heads each of n GPUs has, which may be there several times
// (backend.HeadCopies); 0: they cannot be shared out.
func headsOn(kvHeads, n int) int {
	if kvHeads *= backend.HeadCopies(kvHeads, n); kvHeads%n != 0 {
		return 0
	}
	return kvHeads / n
}

// shareOf is what one of n GPUs keeps of a layer.
func shareOf(s backend.LayerStore, n int) backend.LayerStore {
	s.KVHeads = headsOn(s.KVHeads, n)
	s.State = shareOfState(s.State, true, n)
	return s
}
