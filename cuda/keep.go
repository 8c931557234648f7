package cuda

import (
	"errors"
	"slices"

	"windrow/backend"
	"windrow/cuda/driver"
)

// kept is the operations of a pass, for forwards of other values. A plan of them
// depends on its geometry alone: in one that was seen before the graph is launched
// without planning.
type kept struct {
	b        *Backend
	ops      []op // the head is the last
	buffers  []*buffer
	table    *matrix
	layout   backend.KVLayout
	variants []*variant // the newest first
	clears   int        // of the graphs, when the variants' were made
	want     backend.Want
	limit    int // of ids
	running  bool
}

// variant is the graph of one geometry, and what its plan left behind. Addresses
// cannot have moved: whatever moves them drops all graphs.
type variant struct {
	geometry
	buffers []buffer // as the plan left them
	arena   arenaMark
	logits  driver.Ptr
	graph   *driver.Graph
}

// maxVariants: row buckets of steps, each in some buckets of the context.
const maxVariants = 32

// own is what a pass has of its own, while it runs kept operations.
type own struct {
	ops     []op // nil once the kept ones have been queued
	buffers []*buffer
}

var errNotStarted = errors.New("cuda: no forward has been started")

// Keep ends the pass and keeps its operations.
func (p *pass) Keep() (backend.Recording, error) {
	k := p.keep()
	if err := p.End(); err != nil || k == nil {
		return nil, err
	}
	return k, nil
}

// keep takes operations and buffers of a pass that was flushed once, by Results.
func (p *pass) keep() *kept {
	ops := p.ops[:p.ran]
	if p.err != nil || p.ran == 0 || ops[p.ran-1].kind != opHead || p.table == nil || p.values.cos == nil || p.kept != nil {
		return nil
	}
	k := &kept{b: p.b, ops: slices.Clone(ops), buffers: slices.Clip(p.buffers[:p.used]), table: p.table, layout: p.layout}
	p.buffers, p.used = p.buffers[p.used:], 0
	return k
}

// use makes kept operations those recorded.
func (p *pass) use(k *kept) {
	p.kept, p.own = k, own{p.ops, p.buffers}
	p.ops, p.buffers, p.used = k.ops, k.buffers, len(k.buffers)
	for _, b := range k.buffers {
		*b = buffer{width: b.width}
	}
}

// giveBack ends use.
func (p *pass) giveBack() {
	if p.kept != nil {
		p.buffers, p.used, p.kept, p.own = p.own.buffers, 0, nil, own{}
	}
}

// fill gives the kept operations their values, but for the wanted rows.
func (p *pass) fill(k *kept, v backend.Values) {
	if err := backend.CheckEmbed(p.rows, k.table.in, k.table, v.Tokens); err != nil {
		p.fail("%w", err)
		return
	}
	p.look(k.table, v.Tokens)
	if !p.setSpans("start", v.Spans, 0) {
		return
	}
	l := p.layout
	if l.Layers != k.layout.Layers || l.KVHeads != k.layout.KVHeads || l.HeadDim != k.layout.HeadDim {
		p.fail("start: kv %+v, the operations had %+v", l, k.layout)
		return
	}
	if n := p.rows * l.HeadDim / 2; len(v.Cos) != n || len(v.Sin) != n {
		p.fail("start: %d and %d angles, want %d", len(v.Cos), len(v.Sin), n)
		return
	}
	p.values.cos, p.values.sin = v.Cos, v.Sin
}

// wantedOf checks what is wanted of a forward of kept operations.
func wantedOf(w *backend.Want, rows, vocabulary int) (limit int, err error) {
	if len(w.Rows) == 0 {
		return 0, errors.New("start: no row is wanted")
	}
	return w.Check(rows, vocabulary)
}

// Start begins a forward.
func (k *kept) Start(v backend.Values) error {
	first, err := k.b.Begin(len(v.Tokens))
	if err != nil {
		return err
	}
	p := first.(*pass)
	p.use(k)
	p.fill(k, v)
	vocabulary := k.head().w[0].w.out
	if k.limit, err = wantedOf(&v.Want, p.rows, vocabulary); err != nil {
		p.fail("%w", err)
	}
	if p.err != nil {
		return p.End()
	}
	k.want = v.Want
	p.wantRows(candidates{topOf(v.Want, vocabulary), int32(k.limit), v.Want.Except}, k.rows())
	ctx := k.b.device.ctx
	ctx.Enter()
	defer ctx.Leave()
	if p.err = p.begin(nil); p.err != nil {
		return p.End()
	}
	p.lookAhead()
	p.done(false)
	p.forget()
	k.running = true
	return nil
}

func (k *kept) head() *op { return &k.ops[len(k.ops)-1] }

// rows are the wanted ones whose head is in the first launch.
func (k *kept) rows() []int32 { return k.want.Rows[:min(len(k.want.Rows), headRows)] }

// Wait waits for the forward that Start began.
func (k *kept) Wait() ([]backend.Result, error) {
	if !k.running {
		return nil, errNotStarted
	}
	k.running = false
	if k.b.device == nil {
		return nil, errClosed
	}
	p := &k.b.pass
	results, err := k.results(p)
	return ended(p, results, err)
}

// ended ends a pass with its results, or with their error where it had none.
func ended(p interface {
	fail(format string, args ...any)
	End() error
}, results []backend.Result, err error) ([]backend.Result, error) {
	if err != nil {
		p.fail("%w", err)
	}
	if err := p.End(); err != nil {
		return nil, err
	}
	return results, nil
}

func (k *kept) results(p *pass) ([]backend.Result, error) {
	k.b.device.ctx.Enter()
	p.err = p.wait()
	k.b.device.ctx.Leave()
	if p.err != nil {
		return nil, p.err
	}
	results := make([]backend.Result, 0, len(k.want.Rows))
	first := k.rows()
	if err := p.collect(&results, k.head().w[0].w.out, k.want, k.limit, first); err != nil {
		return nil, err
	}
	for rows := range slices.Chunk(k.want.Rows[len(first):], headRows) {
		if err := p.head(&results, *k.head(), k.want, int32(k.limit), rows); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// find returns what is known of a geometry, or nil.
func (k *kept) find(g *geometry) *variant {
	if k.clears != k.b.graphs.clears {
		k.variants, k.clears = k.variants[:0], k.b.graphs.clears
	}
	for i, v := range k.variants {
		if v.geometry == *g {
			copy(k.variants[1:], k.variants[:i])
			k.variants[0] = v
			return v
		}
	}
	return nil
}

// recall returns the graph of what is kept, and leaves buffers and arena as
// planning would have; nil where the geometry is new.
func (p *pass) recall() *driver.Graph {
	k := p.kept
	if k == nil || p.flushed { // buffers hold something already
		return nil
	}
	v := k.find(&p.plan.geometry)
	if v == nil {
		return nil
	}
	for i, b := range k.buffers {
		*b = v.buffers[i]
	}
	p.b.arena.arenaMark = v.arena
	p.plan.actions, p.plan.logits = p.plan.actions[:0], v.logits
	return v.graph
}

// remember keeps the graph of the plan for recall.
func (p *pass) remember() {
	k := p.kept
	if k == nil || p.flushed || k.find(&p.plan.geometry) != nil {
		return
	}
	if len(k.variants) >= maxVariants {
		k.variants = k.variants[:maxVariants-1]
	}
	v := &variant{geometry: p.plan.geometry, arena: p.b.arena.arenaMark, logits: p.plan.logits, graph: p.graph}
	for _, b := range k.buffers {
		v.buffers = append(v.buffers, *b)
	}
	k.variants = slices.Insert(k.variants, 0, v)
}

var _ backend.Keeper = (*pass)(nil)
