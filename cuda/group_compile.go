package cuda

import (
	"fmt"
	"slices"

	"windrow/backend"
)

// groupBuffer is a buffer of a program on the GPUs of a group: whole on each, or in
// parts of the columns. It has a buffer in each GPU's program in each form that was
// needed; -1: none yet.
type groupBuffer struct {
	width       int
	whole, part []backend.Buffer
	split       bool  // the parts hold the value
	runs        []int // of the columns, each cut by itself (backend.Tensor.Sections)
	copies      int   // GPUs one behind the other that have the same part, as of their weight
}

// copied reports whether several GPUs have the same part: only attention takes such keys
// and values.
func (b *groupBuffer) copied() bool { return b.split && b.copies > 1 }

// cutter rewrites a program into one for each GPU. Which buffers are whole follows from
// the weights that write them.
type cutter struct {
	g       *Group
	f       *groupForward
	parts   []*backend.Program
	buffers []groupBuffer
	err     error
}

// Compile rewrites a program into one for each GPU, and compiles those.
func (g *Group) Compile(p *backend.Program) (backend.Forward, error) {
	if err := g.usable(); err != nil {
		return nil, err
	}
	if err := p.Err(); err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	c := &cutter{g: g, f: &groupForward{g: g, program: p}}
	for range g.shards {
		c.parts = append(c.parts, new(backend.Program))
	}
	for _, width := range p.Widths {
		b := groupBuffer{width: width}
		for range g.shards {
			b.whole, b.part = append(b.whole, -1), append(b.part, -1)
		}
		c.buffers = append(c.buffers, b)
	}
	for i := range p.Ops {
		if err := c.cut(&p.Ops[i]); err != nil {
			return nil, err
		}
	}
	c.beside()
	for i, b := range g.shards {
		f, err := b.compile(c.parts[i])
		if err != nil {
			return nil, onGPU(i, err)
		}
		c.f.parts = append(c.f.parts, f)
	}
	return c.f, nil
}

func (c *cutter) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("cuda: "+format, args...)
	}
}

// cut adds an operation's parts to the programs.
func (c *cutter) cut(o *backend.Op) error {
	before := len(c.parts[0].Ops)
	switch o.Kind {
	case backend.OpEmbed:
		c.embed(o)
	case backend.OpInput:
		c.isWhole(o.Dst[0])
		for i, p := range c.parts {
			p.Input(c.on(i, o.Dst[0]))
		}
	case backend.OpJoin:
		c.join(o)
	case backend.OpRMSNorm:
		c.rmsNorm(o)
	case backend.OpProject:
		c.project(o)
	case backend.OpProjectAdd:
		c.projectAdd(o)
	case backend.OpGatedProject:
		c.gatedProject(o)
	case backend.OpRotateStore:
		c.rotateStore(o)
	case backend.OpAttend:
		c.attend(o)
	case backend.OpDelta:
		c.delta(o)
	case backend.OpRoute:
		c.route(o)
	case backend.OpExpertsAdd:
		c.experts(o)
	case backend.OpTap:
		c.tap(o)
	case backend.OpHead:
		c.head(o)
	default:
		return &backend.UnsupportedError{Backend: c.g.Name(), What: o.Kind.String()}
	}
	for i, p := range c.parts {
		if c.err == nil {
			c.err = onGPU(i, p.Err())
		}
		for j := before; j < len(p.Ops); j++ {
			p.Ops[j].Tapped = o.Tapped
		}
	}
	return c.err
}

// on is GPU i's buffer that holds b's value.
func (c *cutter) on(i int, b backend.Buffer) backend.Buffer {
	y := &c.buffers[b]
	if y.split {
		return y.part[i]
	}
	if y.whole[i] < 0 {
		y.whole[i] = c.parts[i].Buffer(y.width)
	}
	return y.whole[i]
}

// inParts makes b parts, of that width on GPU i: of each of the runs its share.
func (c *cutter) inParts(i int, b backend.Buffer, width int, runs []int) backend.Buffer {
	y := &c.buffers[b]
	y.split, y.runs, y.copies = true, runs, 1
	if y.part[i] < 0 || c.parts[i].Widths[y.part[i]] != width {
		y.part[i] = c.parts[i].Buffer(width)
	}
	return y.part[i]
}

// isWhole says that b's value is whole from here on.
func (c *cutter) isWhole(b backend.Buffer) { c.buffers[b].split, c.buffers[b].runs = false, nil }

// target is GPU i's buffer for the outputs of m.
func (c *cutter) target(i int, b backend.Buffer, m *groupMatrix) backend.Buffer {
	if m.split == backend.SplitOutputs {
		y := c.inParts(i, b, m.parts[i].weight.Out, m.runs)
		c.buffers[b].copies = m.copies
		return y
	}
	c.isWhole(b)
	return c.on(i, b)
}

// whole checks that an operation finds a buffer whole.
func (c *cutter) whole(what string, b backend.Buffer) bool {
	if y := &c.buffers[b]; y.split {
		c.fail("%s: a buffer of width %d is in parts", what, y.width)
		return false
	}
	return true
}

// matrix is a weight of the group's; nil, and an error, where it is not.
func (c *cutter) matrix(x backend.Matrix) *groupMatrix {
	m, ok := x.(*groupMatrix)
	if !ok || m.g != c.g {
		c.err = foreign("weight")
		return nil
	}
	return m
}

func (c *cutter) vector(x backend.Vector) *groupVector {
	v, ok := x.(*groupVector)
	if !ok || v.g != c.g {
		c.err = foreign("norm or bias")
		return nil
	}
	return v
}

// linear is a weight of the group's, and its bias, nil where there is none.
func (c *cutter) linear(w backend.Linear) (m *groupMatrix, bias *groupVector) {
	if m = c.matrix(w.Weight); w.Bias != nil {
		bias = c.vector(w.Bias)
	}
	return m, bias
}

// partOf is GPU i's part of a projection.
func partOf(i int, m *groupMatrix, bias *groupVector) backend.Linear {
	y := backend.Linear{Weight: m.parts[i]}
	// A bias of sums is added once.
	if bias != nil && (m.split != backend.SplitInputs || i == 0) {
		y.Bias = bias.parts[i]
	}
	return y
}

func (c *cutter) embed(o *backend.Op) {
	m := c.matrix(o.Weights[0].Weight)
	switch {
	case m == nil:
		return
	case m.split != backend.SplitNone:
		c.fail("embed: a table in parts")
		return
	}
	c.isWhole(o.Dst[0])
	for i, p := range c.parts {
		p.Embed(c.on(i, o.Dst[0]), m.parts[i])
	}
}

func (c *cutter) join(o *backend.Op) {
	for _, b := range o.Src {
		if !c.whole("join", b) {
			return
		}
	}
	c.isWhole(o.Dst[0])
	for i, p := range c.parts {
		var parts []backend.Buffer
		for _, b := range o.Src {
			parts = append(parts, c.on(i, b))
		}
		p.Join(c.on(i, o.Dst[0]), parts...)
	}
}

func (c *cutter) rmsNorm(o *backend.Op) {
	w := c.vector(o.Norm)
	if w == nil || !c.whole("rms norm", o.Src[0]) {
		return
	}
	c.isWhole(o.Dst[0])
	for i, p := range c.parts {
		p.RMSNorm(c.on(i, o.Dst[0]), c.on(i, o.Src[0]), w.parts[i], o.Eps)
	}
}

// takes checks a projection from a whole buffer.
func (c *cutter) takes(what string, x backend.Buffer, w backend.Linear) bool {
	m, bias := c.linear(w)
	switch {
	case c.err != nil:
		return false
	case m.split == backend.SplitInputs:
		c.fail("%s: a weight of cut inputs makes sums, which only ProjectAdd takes", what)
		return false
	case bias != nil && (bias.split != m.split || !slices.Equal(bias.runs, m.runs) || bias.copies != m.copies):
		c.fail("%s: weight and bias are not cut alike", what)
		return false
	}
	return c.whole(what, x)
}

// project multiplies; outputs that are cut make parts.
func (c *cutter) project(o *backend.Op) {
	for _, w := range o.Weights {
		if !c.takes("project", o.Src[0], w) {
			return
		}
	}
	for i, p := range c.parts {
		var dst []backend.Buffer
		var weights []backend.Linear
		for j, w := range o.Weights {
			m, bias := c.linear(w)
			dst, weights = append(dst, c.target(i, o.Dst[j], m)), append(weights, partOf(i, m, bias))
		}
		p.Project(dst, c.on(i, o.Src[0]), weights)
	}
}

// projectAdd multiplies into the residual: parts of the inputs make parts of the sums,
// which the GPUs exchange.
func (c *cutter) projectAdd(o *backend.Op) {
	dst, src := o.Dst[0], o.Src[0]
	m, bias := c.linear(o.Weights[0])
	switch {
	case c.err != nil || !c.whole("project", dst):
		return
	case m.split == backend.SplitOutputs:
		c.fail("project: outputs in parts cannot be added to a buffer that is whole")
		return
	case m.split == backend.SplitNone:
		if !c.takes("project", src, o.Weights[0]) {
			return
		}
	case !c.buffers[src].split:
		c.fail("project: weight [%d, %d] of cut inputs from width %d, which is not in parts", m.out, m.in, c.buffers[src].width)
		return
	case !slices.Equal(c.buffers[src].runs, m.runs):
		c.fail("project: weight [%d, %d], whose inputs are cut in runs of %v, from parts of runs of %v", m.out, m.in, m.runs, c.buffers[src].runs)
		return
	case c.buffers[src].copied():
		c.fail("project: weight [%d, %d] of cut inputs from parts that several GPUs have", m.out, m.in)
		return
	case bias != nil && bias.split != backend.SplitNone:
		c.fail("project: the bias of sums is whole: %d outputs", m.out)
		return
	}
	for i, p := range c.parts {
		p.ProjectAdd(c.on(i, dst), c.on(i, src), partOf(i, m, bias))
	}
}

func (c *cutter) gatedProject(o *backend.Op) {
	if !c.takes("gated project", o.Src[0], o.Weights[0]) || !c.takes("gated project", o.Src[0], o.Weights[1]) {
		return
	}
	gate, gateBias := c.linear(o.Weights[0])
	up, upBias := c.linear(o.Weights[1])
	if gate.split != up.split || !slices.Equal(gate.runs, up.runs) || gate.copies != up.copies {
		c.fail("gated project: gate and up are not cut alike")
		return
	}
	for i, p := range c.parts {
		p.GatedProject(c.target(i, o.Dst[0], gate), c.on(i, o.Src[0]), partOf(i, gate, gateBias), partOf(i, up, upBias))
	}
}

// RotateStore norms and rotates the heads that each GPU has, and stores their keys
// and values: of more GPUs than KV heads several store the same one.
func (c *cutter) rotateStore(o *backend.Op) {
	q, k, v := o.Src[0], o.Src[1], o.Src[2]
	split := c.buffers[k].split
	for _, b := range o.Src {
		if c.buffers[b].split != split || c.buffers[b].runs != nil || b == q && c.buffers[b].copied() {
			c.fail("rotate: queries, keys and values are not cut alike")
			return
		}
	}
	if !c.storesBy("rotate", o.Layer, split) {
		return
	}
	r, ok := o.Heads.Rotation.(*groupAngles)
	if !ok || r.g != c.g {
		c.err = foreign("rotation")
		return
	}
	if kv := o.Heads.KVHeads; split {
		copies := backend.HeadCopies(kv, len(c.parts))
		if headsOn(kv, len(c.parts)) == 0 || c.buffers[k].copies != copies || c.buffers[v].copies != copies {
			c.fail("rotate: %d kv heads over %d GPUs, whose parts are no heads", kv, len(c.parts))
			return
		}
	}
	for i, p := range c.parts {
		h := o.Heads
		h.Rotation = r.parts[i]
		for _, norm := range []*backend.Vector{&h.QNorm, &h.KNorm} {
			if *norm != nil {
				w := c.vector(*norm)
				if w == nil {
					return
				}
				*norm = w.parts[i]
			}
		}
		if split {
			h.KVHeads = headsOn(h.KVHeads, len(c.parts))
		}
		p.RotateStore(c.on(i, q), c.on(i, k), c.on(i, v), h, o.Layer)
	}
}

// storesBy notes that a layer is stored by heads, or whole: as all others are.
func (c *cutter) storesBy(what string, layer int, split bool) bool {
	if c.f.stores && c.f.split != split {
		c.fail("%s: layer %d is cut, another one is not, or the other way round", what, layer)
		return false
	}
	c.f.stores, c.f.split = true, split
	return true
}

// beside tells the parts what other programs keep in the storage.
func (c *cutter) beside() {
	if !c.f.stores {
		return
	}
	for _, p := range c.parts {
		layers := slices.Clone(c.f.program.Stores())
		for layer := range layers {
			if own := p.Stores(); layer < len(own) && own[layer].Kind != backend.StoreNone {
				layers[layer] = backend.LayerStore{}
			} else if c.f.split {
				layers[layer] = shareOf(layers[layer], len(c.parts))
			}
		}
		p.Beside(layers)
	}
}

// attend is attention of the heads that each GPU has.
func (c *cutter) attend(o *backend.Op) {
	dst, q := o.Dst[0], o.Src[0]
	if c.buffers[q].split != c.f.split || c.buffers[q].copied() {
		c.fail("attend: queries are not cut as keys and values are")
		return
	}
	for i, p := range c.parts {
		from := c.on(i, q)
		if c.f.split {
			c.inParts(i, dst, p.Widths[from]/o.Heads.QStride()*o.Heads.HeadDim, nil)
		} else {
			c.isWhole(dst)
		}
		p.Attend(c.on(i, dst), from, o.Layer, o.Scale)
	}
}

func (c *cutter) tap(o *backend.Op) {
	b, step := &c.buffers[o.Src[0]], len(c.parts)
	if b.split {
		step = b.copies
	}
	if b.split && b.runs != nil {
		c.fail("tap: a buffer of width %d is in parts of several runs", b.width)
		return
	}
	c.f.tapSteps = append(c.f.tapSteps, step)
	for i, p := range c.parts {
		p.Tap(c.on(i, o.Src[0]))
	}
}

// head gives each GPU its part of the vocabulary.
func (c *cutter) head(o *backend.Op) {
	m, norm := c.matrix(o.Weights[0].Weight), c.vector(o.Norm)
	switch {
	case m == nil || norm == nil || !c.whole("results", o.Src[0]):
		return
	case m.split == backend.SplitInputs:
		c.fail("results: a head of cut inputs")
		return
	case m.copies > 1:
		c.fail("results: a head whose parts several GPUs have")
		return
	}
	parts, first, count := m.headParts()
	c.f.first, c.f.heads = first, count
	for i, p := range c.parts {
		p.Head(c.on(i, o.Src[0]), norm.parts[i], o.Eps, parts[i], backend.NoBars)
		if y := p.HeadOp(); y != nil {
			y.Bars = barsOn(o.Bars, m.out, first[i], parts[i].weight.Out)
		}
	}
}

// barsOn are the bars of a GPU's ids, n from first on. A limit of 0 would be none: where
// all ids are barred, the only one under the limit is excepted.
func barsOn(b backend.Bars, vocabulary, first, n int) backend.Bars {
	y := backend.Bars{Limit: int32(min(max(b.Ids(vocabulary)-first, 0), n)), Except: -1}
	if except := int(b.Except) - first; except >= 0 && except < n {
		y.Except = int32(except)
	}
	if y.Limit == 0 {
		y.Limit, y.Except = 1, 0
	}
	return y
}
