package cuda

import (
	"fmt"

	"windrow/backend"
	"windrow/cuda/launch"
	"windrow/quant"
)

// groupMatrix is a weight [out, in] over the GPUs of a group.
type groupMatrix struct {
	g       *Group
	out, in int
	split   backend.Split
	runs    []int // of what is cut, each by itself (backend.Tensor.Sections)
	copies  int   // GPUs one behind the other that have the same part (backend.Tensor.Copies)
	parts   []*matrix
	first   []int // output that a part begins with, where outputs are cut
	heads   []*matrix
}

func (m *groupMatrix) Out() int { return m.out }
func (m *groupMatrix) In() int  { return m.in }

// groupVector is a norm weight or a bias over the GPUs of a group.
type groupVector struct {
	g      *Group
	n      int
	split  backend.Split
	runs   []int
	copies int
	parts  []*vector
}

func (v *groupVector) Len() int { return v.n }

// cutUnit is what parts of outputs are multiples of where they cannot be equal.
const cutUnit = 64

// cuts is where n parts of that many outputs begin, and where the last ends:
// equal parts, or nearly so; nil where there are too few.
func cuts(outputs, n int) []int {
	unit := cutUnit
	if outputs%n == 0 {
		unit = outputs / n
	}
	units := launch.Ceil(outputs, unit)
	if units < n {
		return nil
	}
	list := make([]int, n+1)
	for i := range n {
		list[i] = units * i / n * unit
	}
	list[n] = outputs
	return list
}

// Matrix cuts a weight by its Split, and uploads the parts at the same time. One of
// too few outputs stays whole.
func (g *Group) Matrix(t backend.Tensor) (backend.Matrix, error) {
	if len(t.Shape) != 2 {
		return nil, fmt.Errorf("tensor %s: shape %v, want [out, in]", t.Name, t.Shape)
	}
	if err := t.Check(); err != nil {
		return nil, err
	}
	n := len(g.shards)
	m := &groupMatrix{g: g, out: t.Shape[0], in: t.Shape[1], split: t.Split, runs: t.Sections, copies: t.Copies(n), parts: make([]*matrix, n)}
	at := []int(nil)
	switch {
	case t.Split == backend.SplitInputs:
		if err := t.CheckInputs(n); err != nil {
			return nil, err
		}
	case t.Split == backend.SplitOutputs && (t.Sections != nil || m.copies > 1):
		if err := t.CheckOutputs(n); err != nil {
			return nil, err
		}
	case t.Split == backend.SplitOutputs:
		if at = cuts(m.out, n); at == nil {
			m.split = backend.SplitNone
		} else {
			m.first = at[:n]
		}
	}
	err := g.each(func(i int, b *Backend) error {
		part := t
		part.Split = m.split
		switch {
		case at != nil:
			part = t.Outputs(at[i], at[i+1]-at[i])
		case m.copies > 1:
			part = t.OutputShare(i, n, nil)
		case m.split != backend.SplitNone:
			room, err := b.gather(t.Bytes() / n)
			if err != nil {
				return err
			}
			if m.split == backend.SplitInputs {
				part = t.InputShare(i, n, room)
			} else {
				part = t.OutputShare(i, n, room)
			}
		}
		y, err := b.Matrix(part)
		if err != nil {
			return err
		}
		m.parts[i] = y.(*matrix)
		return nil
	})
	if err != nil {
		return nil, err
	}
	g.progress(int64(quant.ConvertedBytes(t, g.shards[0].exact)))
	return m, nil
}

// gatheredRoom is how much of gathered weights is on its way at once, where they are
// small: a model of experts has tens of thousands.
const gatheredRoom = 8 << 20

// gather is room for n bytes of a weight that are gathered on the host, which an upload
// reads until the next Flush.
func (b *Backend) gather(n int) ([]byte, error) {
	if n > len(b.gathered)-b.inGathered {
		if err := b.uploader.Flush(); err != nil {
			return nil, err
		}
		if b.inGathered = 0; n > len(b.gathered) {
			b.gathered = make([]byte, max(n, gatheredRoom))
		}
	}
	room := b.gathered[b.inGathered:][:n:n]
	b.inGathered += n
	return room, nil
}

// Vector cuts a bias of cut outputs as they are cut, and keeps others whole.
func (g *Group) Vector(t backend.Tensor) (backend.Vector, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	n := len(g.shards)
	v := &groupVector{g: g, n: t.Shape[0], split: t.Split, runs: t.Sections, copies: t.Copies(n), parts: make([]*vector, n)}
	at := cuts(v.n, n)
	if t.Split == backend.SplitInputs || len(t.Shape) != 1 || at == nil && v.copies == 1 {
		v.split, v.runs, v.copies = backend.SplitNone, nil, 1
	}
	if v.runs != nil || v.copies > 1 {
		if err := t.CheckOutputs(n); err != nil {
			return nil, err
		}
	}
	err := g.each(func(i int, b *Backend) error {
		part := t
		switch {
		case v.runs != nil || v.copies > 1:
			part = t.OutputShare(i, n, nil)
		case v.split == backend.SplitOutputs:
			part = t.Outputs(at[i], at[i+1]-at[i])
		}
		y, err := b.Vector(part)
		if err != nil {
			return err
		}
		v.parts[i] = y.(*vector)
		return nil
	})
	if err != nil {
		return nil, err
	}
	g.progress(int64(t.Bytes()))
	return v, nil
}

// groupAngles are a table on each GPU.
type groupAngles struct {
	g     *Group
	parts []*angles
}

func (a *groupAngles) Pairs() int     { return a.parts[0].Pairs() }
func (a *groupAngles) Positions() int { return a.parts[0].Positions() }

// Rotation takes a table on every GPU.
func (g *Group) Rotation(a backend.Angles, positions int) (backend.Rotation, error) {
	if err := g.usable(); err != nil {
		return nil, err
	}
	y := &groupAngles{g: g}
	for i, b := range g.shards {
		r, err := b.Rotation(a, positions)
		if err != nil {
			return nil, onGPU(i, err)
		}
		y.parts = append(y.parts, r.(*angles))
	}
	return y, nil
}

func (g *Group) progress(bytes int64) {
	if g.notify != nil {
		g.notify(bytes)
	}
}

// asHead gives the parts of a head, and where they begin: its own, or views of
// equal parts of a whole one, such as an embedding that is the head as well. It
// returns nil where every GPU has to make all of it.
func (m *groupMatrix) asHead() (parts []*matrix, first []int) {
	if m.split == backend.SplitOutputs {
		return m.parts, m.first
	}
	if m.heads == nil {
		at := cuts(m.out, len(m.parts))
		if at == nil || m.split != backend.SplitNone {
			return nil, nil
		}
		for i, p := range m.parts {
			view, ok := p.view(at[i], at[i+1]-at[i])
			if !ok {
				return nil, nil
			}
			m.heads = append(m.heads, view)
		}
		m.first = at[:len(m.parts)]
	}
	return m.heads, m.first
}
