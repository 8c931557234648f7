package backend

import (
	"fmt"
	"slices"
)

// Buffer names activations of a Program, shape [rows of the forward, width].
type Buffer int

// OpKind says what an operation does.
type OpKind uint8

// The operations. A backend may lack some: its Compile then refuses.
const (
	OpEmbed OpKind = iota + 1
	OpRMSNorm
	OpProject
	OpProjectAdd
	OpGatedProject
	OpRotateStore
	OpAttend
	OpTap
	OpHead
	OpRoute
	OpExpertsAdd
	OpDelta
	OpInput
	OpJoin

	opEnd // one past the last
)

var opNames = [...]string{"", "embed", "rms norm", "project", "project add", "gated project", "rotate and store", "attend", "tap", "head", "route", "experts add", "delta", "input", "join"}

// Known reports whether k is one of the operations.
func (k OpKind) Known() bool { return k > 0 && k < opEnd }

func (k OpKind) String() string {
	if k > 0 && int(k) < len(opNames) {
		return opNames[k]
	}
	return fmt.Sprintf("operation %d", uint8(k))
}

// Op is one operation of a Program. Which fields are in use is said by the
// method of Program that lists it.
type Op struct {
	Kind OpKind
	// Dst are the buffers that it writes, Src those that it reads.
	Dst, Src []Buffer
	// Weights are the table of Embed, one weight for each Dst of Project, that of
	// ProjectAdd, gate and up of GatedProject, the head, or the router.
	Weights []Linear
	// Norm is the weight of RMSNorm and Head, shape [width].
	Norm Vector
	Eps  float32
	// Scale is what Attend multiplies scores with.
	Scale float32
	// Layer is where RotateStore and Attend have their keys and values, of the
	// shape that Heads says.
	Layer int
	Heads Heads
	// Index counts the Taps from 0.
	Index int
	// Tapped operations run only in forwards whose Values have a Tap.
	Tapped bool
	// Bars are of Head.
	Bars Bars
	// Chosen is how many experts Route chooses for a row, and Renormalise whether their
	// weights are made to sum up to 1. Experts are those of ExpertsAdd.
	Chosen      int
	Renormalise bool
	Experts     *Experts
	// Delta is the operation's own.
	Delta *Delta
}

// Heads says how queries, keys and values are rotated and stored.
type Heads struct {
	KVHeads, HeadDim int
	QNorm, KNorm     Vector // [head dim] RMSNorm weights; nil: no norm
	Eps              float32
	Rotation         Rotation
	// Gated: behind each head of q lies as much of a gate, which is neither normed nor
	// rotated; Attend multiplies a head with the sigmoid of its gate.
	Gated bool
}

// QStride is how far apart heads of q lie.
func (h *Heads) QStride() int {
	if h.Gated {
		return 2 * h.HeadDim
	}
	return h.HeadDim
}

// Bars bar ids from Argmax and Top for all forwards of a program, not from the
// entropy, the log-sum-exp or Logits: ids ≥ Limit (0: no limit), and the id
// Except (negative: none). They bar the mask id and the ids past the tokenizer's size.
type Bars struct{ Limit, Except int32 }

// NoBars bars no id.
var NoBars = Bars{Except: -1}

// Ids is how many ids of a vocabulary of that size lie below the limit.
func (b Bars) Ids(vocabulary int) int {
	if b.Limit <= 0 || int(b.Limit) > vocabulary {
		return vocabulary
	}
	return int(b.Limit)
}

// Program is the operations of a forward, in order. A model lists them once, when it
// is loaded; a backend compiles them; each forward then brings only Values.
//
// Its methods check shapes, for all backends: the first error is kept, returned by
// Err, and refused by every Compile. A Program is not changed once it is compiled.
//
// Row r of a span sees indices 0..Base+r of its sequence's storage (all of them, or those
// that a rotating layout keeps), in packed order: there is no other mask. Row r's key
// and value are stored at index Base+r.
type Program struct {
	Widths []int // of the buffers
	Ops    []Op

	ids       int          // that every table of Embed has
	input     int          // width of Values.Input; 0: nothing is taken
	heads     Heads        // whose shape all layers have
	stores    []LayerStore // by layer
	positions int          // that every rotation has
	taps      int
	err       error
}

// Err is the first error of what was listed, which is to be whole.
func (p *Program) Err() error {
	if p.err == nil && (len(p.Ops) == 0 || p.Ops[0].Kind != OpEmbed) {
		return fmt.Errorf("program: the first operation must be an embedding")
	}
	return p.err
}

// PartErr is the first error of what was listed, which may be a part of a program.
func (p *Program) PartErr() error { return p.err }

func (p *Program) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

// Buffer makes a buffer; its contents are undefined until an operation writes it.
func (p *Program) Buffer(width int) Buffer {
	if width <= 0 {
		p.fail("buffer: width %d, want a positive one", width)
	}
	p.Widths = append(p.Widths, width)
	return Buffer(len(p.Widths) - 1)
}

// width is a buffer's width; 0, and an error, for one that is not the program's.
func (p *Program) width(b Buffer) int {
	if b < 0 || int(b) >= len(p.Widths) {
		p.fail("buffer %d: the program has %d", b, len(p.Widths))
		return 0
	}
	return p.Widths[b]
}

func (p *Program) add(o Op) {
	if p.err != nil {
		return
	}
	if i := p.head(); i >= 0 {
		p.fail("%v: nothing may follow the head", o.Kind)
		return
	}
	p.Ops = append(p.Ops, o)
}

// head is the index of the head, or -1.
func (p *Program) head() int {
	if n := len(p.Ops); n > 0 && p.Ops[n-1].Kind == OpHead {
		return n - 1
	}
	return -1
}

// Embed sets dst row r to row Values.Tokens[r] of table, shape [vocabulary, width].
func (p *Program) Embed(dst Buffer, table Matrix) {
	if w := p.width(dst); w != table.In() {
		p.fail("embed: a table of width %d into rows of width %d", table.In(), w)
	}
	if p.ids == 0 || table.Out() < p.ids {
		p.ids = table.Out()
	}
	p.add(Op{Kind: OpEmbed, Dst: []Buffer{dst}, Weights: []Linear{{Weight: table}}})
}

// Input sets dst row r to row r of Values.Input. A program takes one input at most.
func (p *Program) Input(dst Buffer) {
	w := p.width(dst)
	if p.input > 0 {
		p.fail("input: rows of width %d are taken already", p.input)
	}
	p.input = w
	p.add(Op{Kind: OpInput, Dst: []Buffer{dst}})
}

// Join sets each row of dst to those of the parts, one behind the other.
func (p *Program) Join(dst Buffer, parts ...Buffer) {
	width := 0
	for _, b := range parts {
		if width += p.width(b); b == dst {
			p.fail("join: buffer %d is read and written", b)
		}
	}
	if d := p.width(dst); d != width || width == 0 {
		p.fail("join: parts of width %d in all into width %d", width, d)
	}
	p.add(Op{Kind: OpJoin, Dst: []Buffer{dst}, Src: slices.Clone(parts)})
}

// RMSNorm sets dst = x / sqrt(mean(x²) + eps) · weight, per row. dst may be x.
func (p *Program) RMSNorm(dst, x Buffer, weight Vector, eps float32) {
	p.add(p.rmsNorm(dst, x, weight, eps))
}

func (p *Program) rmsNorm(dst, x Buffer, weight Vector, eps float32) Op {
	if d, s := p.width(dst), p.width(x); d != s || weight.Len() != s {
		p.fail("rms norm: widths %d, %d and weight %d differ", d, s, weight.Len())
	}
	return Op{Kind: OpRMSNorm, Dst: []Buffer{dst}, Src: []Buffer{x}, Norm: weight, Eps: eps}
}

// linear checks a projection from x to dst.
func (p *Program) linear(what string, dst, x Buffer, w Linear) {
	d, s := p.width(dst), p.width(x)
	if w.Weight.In() != s || w.Weight.Out() != d {
		p.fail("%s: weight [%d, %d] from width %d to %d", what, w.Weight.Out(), w.Weight.In(), s, d)
	}
	if w.Bias != nil && w.Bias.Len() != w.Weight.Out() {
		p.fail("%s: bias of %d for %d outputs", what, w.Bias.Len(), w.Weight.Out())
	}
	if dst == x {
		p.fail("%s: buffer %d is read and written", what, dst)
	}
}

// Project sets dst[i] = x·w[i]ᵀ + bias for each i: projections that share an input
// share one dispatch. No dst may be x, or another dst.
func (p *Program) Project(dst []Buffer, x Buffer, w []Linear) {
	if len(dst) != len(w) || len(w) == 0 {
		p.fail("project: %d weights into %d buffers", len(w), len(dst))
		return
	}
	for i := range w {
		p.linear("project", dst[i], x, w[i])
		if slices.Contains(dst[:i], dst[i]) {
			p.fail("project: buffer %d is written twice", dst[i])
		}
	}
	p.add(Op{Kind: OpProject, Dst: slices.Clone(dst), Src: []Buffer{x}, Weights: slices.Clone(w)})
}

// ProjectAdd adds x·wᵀ + bias to dst: a projection into the residual.
func (p *Program) ProjectAdd(dst, x Buffer, w Linear) {
	p.linear("project", dst, x, w)
	p.add(Op{Kind: OpProjectAdd, Dst: []Buffer{dst}, Src: []Buffer{x}, Weights: []Linear{w}})
}

// GatedProject sets dst = silu(x·gateᵀ) ⊙ (x·upᵀ): SwiGLU's first half.
func (p *Program) GatedProject(dst, x Buffer, gate, up Linear) {
	p.linear("gated project", dst, x, gate)
	p.linear("gated project", dst, x, up)
	p.add(Op{Kind: OpGatedProject, Dst: []Buffer{dst}, Src: []Buffer{x}, Weights: []Linear{gate, up}})
}

// RotateStore norms the heads of q and k (where weights are given), rotates the first
// 2·Pairs elements of each by its row's position, leaves q in place, and stores k and v
// in the spans' storage at layer.
func (p *Program) RotateStore(q, k, v Buffer, h Heads, layer int) {
	d := h.HeadDim
	wq, wk, wv := p.width(q), p.width(k), p.width(v)
	switch {
	case h.KVHeads <= 0 || d <= 0 || d%2 != 0:
		p.fail("rotate: %d heads of %d, want positive numbers, the second even", h.KVHeads, d)
	case wk != h.KVHeads*d || wv != wk || wq%(h.KVHeads*h.QStride()) != 0:
		p.fail("rotate: widths q %d, k %d, v %d for %d heads of %d", wq, wk, wv, h.KVHeads, d)
	case h.QNorm != nil && h.QNorm.Len() != d, h.KNorm != nil && h.KNorm.Len() != d:
		p.fail("rotate: head norms of another length than %d", d)
	case h.Rotation == nil || h.Rotation.Pairs() <= 0 || 2*h.Rotation.Pairs() > d:
		p.fail("rotate: heads of %d want a rotation of 1 to %d pairs", d, d/2)
	case layer < 0:
		p.fail("rotate: layer %d", layer)
	}
	if p.err != nil {
		return
	}
	if p.heads.Rotation == nil {
		p.heads, p.positions = h, h.Rotation.Positions()
	}
	switch {
	case p.stored(layer) != StoreNone:
		p.fail("rotate: layer %d stores its keys twice", layer)
	case h.Gated != p.heads.Gated:
		p.fail("rotate: layer %d has gates %v, another %v", layer, h.Gated, p.heads.Gated)
	case h.KVHeads != p.heads.KVHeads || d != p.heads.HeadDim:
		p.fail("rotate: layer %d has %d heads of %d, another %d of %d", layer, h.KVHeads, d, p.heads.KVHeads, p.heads.HeadDim)
	}
	p.positions = min(p.positions, h.Rotation.Positions())
	p.store(layer, LayerStore{Kind: StoreKeys, KVHeads: h.KVHeads, HeadDim: d})
	p.add(Op{Kind: OpRotateStore, Dst: []Buffer{q}, Src: []Buffer{q, k, v}, Heads: h, Eps: h.Eps, Layer: layer})
}

// Attend sets dst to causal attention of q's heads over the spans' storage at layer, whose
// scores are multiplied with scale. Query head h uses key head
// h / (query heads / key heads). Where q has gates, which dst has not, it is
// multiplied with their sigmoid.
func (p *Program) Attend(dst, q Buffer, layer int, scale float32) {
	d, s := p.width(dst), p.width(q)
	h := p.heads
	switch {
	case p.stored(layer) != StoreKeys:
		p.fail("attend: layer %d has no keys", layer)
	case d*h.QStride() != s*h.HeadDim || d%(h.KVHeads*h.HeadDim) != 0:
		p.fail("attend: widths %d and %d for %d kv heads of %d", d, s, h.KVHeads, h.HeadDim)
	case dst == q:
		p.fail("attend: buffer %d is read and written", dst)
	}
	p.add(Op{Kind: OpAttend, Dst: []Buffer{dst}, Src: []Buffer{q}, Heads: h, Scale: scale, Layer: layer})
}

// Tap shows x to forwards whose Values have a Tap.
func (p *Program) Tap(x Buffer) {
	p.width(x)
	p.add(Op{Kind: OpTap, Src: []Buffer{x}, Index: p.taps, Tapped: true})
	p.taps++
}

// TapNormed shows x normed, with room for that in another buffer.
func (p *Program) TapNormed(x, room Buffer, norm Vector, eps float32) {
	o := p.rmsNorm(room, x, norm, eps)
	o.Tapped = true
	p.add(o)
	p.Tap(room)
}

// Head applies the final norm and the head, shape [vocabulary, width], to the wanted
// rows. It is the last operation.
func (p *Program) Head(x Buffer, norm Vector, eps float32, head Matrix, bars Bars) {
	if w := p.width(x); head.In() != w || norm.Len() != w {
		p.fail("head: norm %d and head %d for width %d", norm.Len(), head.In(), w)
	}
	if bars.Ids(head.Out()) == 1 && bars.Except == 0 {
		p.fail("head: no id may be chosen")
	}
	p.add(Op{Kind: OpHead, Src: []Buffer{x}, Norm: norm, Eps: eps, Weights: []Linear{{Weight: head}}, Bars: bars})
}

// HeadOp is the head; nil where the program has none.
func (p *Program) HeadOp() *Op {
	if i := p.head(); i >= 0 {
		return &p.Ops[i]
	}
	return nil
}

// stored is what a layer was listed to store so far.
func (p *Program) stored(layer int) StoreKind {
	if layer < 0 || layer >= len(p.stores) {
		return StoreNone
	}
	return p.stores[layer].Kind
}

// store notes what a layer keeps.
func (p *Program) store(layer int, s LayerStore) {
	for len(p.stores) <= layer {
		p.stores = append(p.stores, LayerStore{})
	}
	p.stores[layer] = s
}

// Stores is what each layer keeps: the Layers of the storage that the program takes.
// They must not be changed.
func (p *Program) Stores() []LayerStore { return p.stores }

// Beside says what programs that run over the same storage keep in it: layers in which
// this one stores nothing. It comes after what the program itself stores.
func (p *Program) Beside(layers []LayerStore) {
	for layer, s := range layers {
		switch own := p.stored(layer); {
		case s.Kind == StoreNone:
		case own != StoreNone:
			p.fail("storage: layer %d is stored by two programs", layer)
		case s.Kind == StoreKeys && p.heads.Rotation != nil && (s.KVHeads != p.heads.KVHeads || s.HeadDim != p.heads.HeadDim):
			p.fail("storage: layer %d has %d heads of %d, another %d of %d", layer, s.KVHeads, s.HeadDim, p.heads.KVHeads, p.heads.HeadDim)
		default:
			p.store(layer, s)
		}
	}
}

// Recurs reports whether an operation of the program works on states: forwards of one
// that does not leave those of its storage alone.
func (p *Program) Recurs() bool {
	return slices.ContainsFunc(p.Ops, func(o Op) bool { return o.Kind == OpDelta })
}

// KeyLayer is the number of a layer among those with keys: its place in a page.
func (p *Program) KeyLayer(layer int) int { return layerOf(StoreKeys, p.stores, layer) }

// StateLayer is the number of a layer among those with a state.
func (p *Program) StateLayer(layer int) int { return layerOf(StoreState, p.stores, layer) }

// UnsupportedError says that a backend lacks an operation, or a form of one.
type UnsupportedError struct {
	Backend string // its name
	What    string // such as "operation 12" or "rotation of 64 of 256 elements"
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s: this backend has no %s", e.Backend, e.What)
}
