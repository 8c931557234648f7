package cuda

import (
	"fmt"
	"slices"

	"windrow/backend"
	"windrow/cuda/launch"
)

// Compile looks up the weights of a program's operations. Graphs are made when
// forwards need them.
func (b *Backend) Compile(p *backend.Program) (backend.Forward, error) {
	f, err := b.compile(p)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (b *Backend) compile(p *backend.Program) (*forward, error) {
	if b.device == nil {
		return nil, errClosed
	}
	if err := p.Err(); err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	b.device.PreloadRest() // the weights of a whole program are there
	return b.compilePart(p)
}

// compilePart makes a forward of a part of a program, to plan with: it is not to be run.
func (b *Backend) compilePart(p *backend.Program) (*forward, error) {
	if err := p.PartErr(); err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	c := compiler{b: b, f: &forward{b: b, program: p, widths: p.Widths, states: recurrent(p)}}
	if err := c.joinGates(&p); err != nil {
		return nil, err
	}
	for i := range p.Ops {
		if err := c.add(&p.Ops[i]); err != nil {
			c.f.free()
			return nil, err
		}
	}
	return c.end(), nil
}

// compiler makes a forward of a program.
type compiler struct {
	b      *Backend
	f      *forward
	ops    []op // since the last Tap
	parted int  // operations of f.ops in parts that have ended
	last   *op  // the operation before, whatever Taps there were
	hidden op   // what a head's results bring of its rows, where that is wanted
	err    error
}

// foreign is the error of what another backend has taken.
func foreign(what string) error { return fmt.Errorf("cuda: a %s of another backend", what) }

func (c *compiler) matrix(x backend.Matrix) *matrix {
	m, ok := x.(*matrix)
	if !ok || m.b != c.b {
		c.err = foreign("weight")
		return nil
	}
	return m
}

// weight is what a launch takes of a matrix.
func (c *compiler) weight(x backend.Matrix) *launch.Weight {
	if m := c.matrix(x); m != nil {
		return &m.weight
	}
	return nil
}

// vector is nil where there is none.
func (c *compiler) vector(x backend.Vector) *vector {
	if x == nil {
		return new(vector)
	}
	v, ok := x.(*vector)
	if !ok || v.b != c.b {
		c.err = foreign("norm or bias")
		return new(vector)
	}
	return v
}

func (c *compiler) linear(w backend.Linear) launch.Linear {
	return launch.Linear{Weight: c.weight(w.Weight), Bias: c.vector(w.Bias).data}
}

// add translates an operation.
func (c *compiler) add(o *backend.Op) error {
	y := op{layer: c.f.program.KeyLayer(o.Layer), eps: o.Eps, scale: o.Scale, dst: o.Dst, src: o.Src, kvHeads: o.Heads.KVHeads, dim: o.Heads.HeadDim}
	switch o.Kind {
	case backend.OpEmbed:
		c.embed(&y, c.matrix(o.Weights[0].Weight))
	case backend.OpInput:
		c.fromHost(&y, nil, c.f.widths[o.Dst[0]])
	case backend.OpJoin:
		if err := c.behindEachOther(&y, o); err != nil {
			return err
		}
	case backend.OpRMSNorm:
		y.kind, y.norm[0] = opRMSNorm, c.vector(o.Norm).data
	case backend.OpProject:
		return c.project(y, o)
	case backend.OpProjectAdd:
		y.kind = opProjectAdd
		c.weights(&y, o.Weights)
	case backend.OpGatedProject:
		y.kind = opGated
		c.weights(&y, o.Weights)
	case backend.OpRotateStore:
		if err := c.rotate(&y, &o.Heads); err != nil {
			return err
		}
	case backend.OpAttend:
		y.kind, y.gated = opAttend, o.Heads.Gated
	case backend.OpDelta:
		if err := c.delta(&y, o); err != nil {
			return err
		}
	case backend.OpTap:
		c.tap(o.Src[0])
		return c.err
	case backend.OpHead:
		c.head(&y, o)
	case backend.OpRoute:
		if err := c.route(&y, o); err != nil {
			return err
		}
	case backend.OpExpertsAdd:
		if o.Experts.Host != nil {
			return c.hosted(y, o)
		}
		if err := c.experts(&y, o); err != nil {
			return err
		}
	default:
		return &backend.UnsupportedError{Backend: c.b.Name(), What: o.Kind.String()}
	}
	c.append(y, o.Tapped)
	return c.err
}

func (c *compiler) append(y op, tapped bool) {
	c.ops = append(c.ops, y)
	c.last = &c.ops[len(c.ops)-1]
	if !tapped {
		c.f.ops = append(c.f.ops, y)
	}
}

func (c *compiler) weights(y *op, list []backend.Linear) {
	for _, w := range list {
		y.w[y.n] = c.linear(w)
		y.n++
	}
}

// embed gathers rows; those of quantised tables are decoded on the host, a few a step.
func (c *compiler) embed(y *op, table *matrix) {
	if c.err != nil {
		return
	}
	y.kind, y.w[0], y.n = opEmbed, launch.Linear{Weight: &table.weight}, 1
	if table.weight.DType.Quantized() {
		c.fromHost(y, table, table.weight.In)
	}
}

// fromHost takes rows of a table that the host decodes, or, where it is nil, given ones.
func (c *compiler) fromHost(y *op, table *matrix, width int) {
	y.kind, y.first = opFromHost, c.f.hostWidth
	c.f.fromHost = append(c.f.fromHost, hostRows{table, width})
	c.f.hostWidth += width
}

// behindEachOther joins buffers.
func (c *compiler) behindEachOther(y *op, o *backend.Op) error {
	if most := len(action{}.from); len(o.Src) > most {
		return &backend.UnsupportedError{Backend: c.b.Name(), What: fmt.Sprintf("%v of %d parts, but of %d at most", o.Kind, len(o.Src), most)}
	}
	y.kind = opJoin
	return nil
}

// project cuts projections of one input into threes, which a launch takes at most.
func (c *compiler) project(y op, o *backend.Op) error {
	y.kind = opProject
	targets := slices.Collect(slices.Chunk(o.Dst, len(y.w)))
	for i, w := range slices.Collect(slices.Chunk(o.Weights, len(y.w))) {
		part := y
		part.dst = targets[i]
		c.weights(&part, w)
		c.append(part, o.Tapped)
	}
	return c.err
}

func (c *compiler) rotate(y *op, h *backend.Heads) error {
	a, ok := h.Rotation.(*angles)
	if !ok || a.b != c.b {
		return foreign("rotation")
	}
	if h.HeadDim > launch.MaxHeadDim {
		return &backend.UnsupportedError{Backend: c.b.Name(), What: fmt.Sprintf("rotation of heads of %d", h.HeadDim)}
	}
	y.kind, y.angles, y.gated = opRotate, a, h.Gated
	y.norm[0], y.norm[1] = c.vector(h.QNorm).data, c.vector(h.KNorm).data
	if !slices.Contains(c.f.angles, a) {
		c.f.angles = append(c.f.angles, a)
	}
	return c.err
}

func (c *compiler) tap(x backend.Buffer) {
	c.f.sections = append(c.f.sections, section{ops: c.ops, shown: x, first: len(c.f.sections) == 0})
	c.ops = nil
}

func (c *compiler) head(y *op, o *backend.Op) {
	y.kind, y.w[0], y.n, y.norm[0] = opHead, launch.Linear{Weight: c.weight(o.Weights[0].Weight)}, 1, c.vector(o.Norm).data
	c.hidden = op{kind: opHidden, src: o.Src, eps: o.Eps, norm: y.norm}
}

// told is a forward's last operations where results bring hidden states.
func (c *compiler) told(ops []op) []op {
	n := len(ops) - 1
	if n < 0 || ops[n].kind != opHead {
		return nil
	}
	return slices.Concat(ops[:n], []op{c.hidden}, ops[n:])
}

// end is the forward, whose last section has no Tap behind it.
func (c *compiler) end() *forward {
	c.f.sections = append(c.f.sections, section{ops: c.ops, told: c.told(c.ops), shown: -1, first: len(c.f.sections) == 0, last: true})
	c.f.told = c.told(c.f.ops)
	c.endParts()
	c.f.now.f, c.f.next.f = c.f, c.f
	return c.f
}
