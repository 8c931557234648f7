package cuda

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"windrow/backend"
	"windrow/cuda/driver"
	"windrow/cuda/launch"
	"windrow/quant"
)

// forward is a program on one GPU. Its operations are planned for a geometry, and
// launched: in decode passes as a graph, which is kept, in others kernel by kernel.
//
// The methods below Start are steps that a group of GPUs takes together.
type forward struct {
	b         *Backend
	program   *backend.Program
	widths    []int     // of buffers
	states    int       // layers that have one
	ops       []op      // without a Tap; the head is the last
	told      []op      // the same with what results bring of hidden states
	sections  []section // with one, up to each Tap, and the rest
	parts     []section // without one, where the host runs experts; nil: all is one section
	fromHost  []hostRows
	hostWidth int // floats a row of those
	angles    []*angles
	owned     []driver.Ptr // lists of experts
	closed    bool
	prompted  map[geometry]bool // passes of prompts that have run
	warmed    map[geometry]bool // in a group: of prefill passes whose kernels are loaded
	prepared  bool              // what was begun last had no graph

	values  launch.StepValues // of the forward that runs
	prompts bool              // its rows are to have the bits of prompts' rows
	want    []backend.Wanted
	hidden  bool      // of some of which the hidden states
	asked   []int     // of which more than those is wanted; the head runs on them
	host    []float32 // rows that come from the host
	now     plan
	graph   *driver.Graph // of what is to be launched; nil: kernel by kernel
	head    *action       // of what was launched last; nil: it had none
	next    plan
	spans   []backend.Span // of the next forward
}

// hostRows are rows that come from the host: of a table that it decodes, or given ones.
type hostRows struct {
	table *matrix // nil: Values.Input
	width int
}

var (
	errClosed     = errors.New("cuda: the backend is closed")
	errNotStarted = errors.New("cuda: no forward has been started")
	errRuns       = errors.New("cuda: a forward has not been waited for")
	errGone       = errors.New("cuda: the forward is closed")
)

// Start begins a forward.
func (f *forward) Start(ctx context.Context, v backend.Values) error {
	b := f.b
	switch {
	case b.device == nil:
		return errClosed
	case f.closed:
		return errGone
	case b.running != nil:
		return errRuns
	}
	if err := check(ctx, f.program, &v); err != nil {
		return err
	}
	b.device.Context.Enter()
	defer b.device.Context.Leave()
	err := f.set(&v, v.Spans)
	if err == nil && v.Tap != nil {
		err = f.show(ctx, v.Tap)
	}
	switch {
	case err != nil:
	case v.Tap == nil && f.parts != nil:
		err = f.runParts(ctx)
	default:
		err = f.begin(f.rest(v.Tap != nil))
	}
	if err == nil {
		if v.Deferred != nil {
			v.Deferred()
		}
		f.lookAhead()
		b.running = f
	}
	f.forget()
	return err
}

// Prepared implements backend.Preparer.
func (f *forward) Prepared() bool { return f.prepared }

// check is what is checked of values before a device is asked for anything.
func check(ctx context.Context, p *backend.Program, v *backend.Values) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := p.CheckValues(v); err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	return nil
}

// set takes values that were checked, and has what they need besides launches: pages
// and angles. The spans' storage is this GPU's.
func (f *forward) set(v *backend.Values, spans []backend.Span) error {
	if len(f.program.Stores()) == 0 { // they were not checked
		spans = nil
	}
	for i, s := range spans {
		c, ok := s.Storage.(*storage)
		if !ok || !c.Open() || c.b != f.b {
			return fmt.Errorf("cuda: span %d has no open storage of this backend", i)
		}
	}
	y := &f.values
	f.prompts = v.Prompts && len(v.Tokens) <= f.b.promptRows
	y.Rows, y.Tokens, y.Positions, y.Spans = len(v.Tokens), v.Tokens, v.Positions, spans
	f.setWant(v.Want)
	f.look(v)
	for i, s := range spans {
		c := s.Storage.(*storage)
		if err := c.Begin(c, s.Base, s.Rows, f.states > 0); err != nil {
			return fmt.Errorf("cuda: %w", backend.InSpan(i, err))
		}
	}
	for _, a := range f.angles {
		for _, p := range v.Positions {
			if err := a.Has(int(p)); err != nil {
				return err
			}
		}
	}
	f.now.geometry = f.geometry(spans)
	return nil
}

// forget lets go of the caller's slices, but for the wanted rows.
func (f *forward) forget() {
	y := &f.values
	y.Tokens, y.Positions, y.Spans = nil, nil, nil
	clear(f.spans)
}

// look makes the rows that come from the host.
func (f *forward) look(v *backend.Values) {
	n := f.hostWidth * len(v.Tokens)
	f.host = slices.Grow(f.host[:0], n)[:n]
	to := f.host
	for _, h := range f.fromHost {
		if h.table == nil {
			to = to[copy(to, v.Input):]
			continue
		}
		for _, id := range v.Tokens {
			quant.Row(to[:h.width], &h.table.tensor, int(id))
			to = to[h.width:]
		}
	}
}

// leastPrompt is the rows that a pass of prompts is rounded up to, at least.
const leastPrompt = 64

// geometry rounds the forward's sizes up to those of its graphs, with those spans.
func (f *forward) geometry(spans []backend.Span) geometry {
	v := &f.values
	z := sizes{rows: v.Rows, spans: len(spans), slots: 1, prompt: f.prompts}
	for _, s := range spans {
		z.slots = max(z.slots, launch.SlotsOf(s))
		z.longest = max(z.longest, s.Rows)
	}
	if len(spans) == 0 {
		z.longest = v.Rows
	} else {
		z.kv = spans[0].Storage.(*storage).keys
	}
	g := f.rounded(z)
	g.host, g.hidden = 4*len(f.host), f.hidden
	if n := len(v.Want); n > 0 {
		g.head, g.top = launch.RowBucket(n), v.Top
	}
	return g
}

// sizes are those of a forward's rows and spans.
type sizes struct {
	rows, spans int
	slots       int // of the longest context
	longest     int // rows of a span, at most
	kv          backend.Keys
	prompt      bool // rows of prompts alone
}

// rounded is the geometry of a forward of such sizes, without what it wants.
func (f *forward) rounded(z sizes) geometry {
	g := geometry{prompt: z.prompt, kv: z.kv}
	g.decode = z.longest <= invariantRows && !z.prompt
	g.chunks = launch.PowerOfTwo(launch.Ceil(z.slots, launch.ChunkSlots))
	bucket := launch.RowBucket(z.rows)
	if z.prompt {
		bucket = max(bucket, leastPrompt) // kernels of many rows take no fewer
	}
	g.shape = launch.StepShape{Bucket: bucket, Spans: launch.PowerOfTwo(z.spans), States: f.states}
	g.shape.Pages = max(8, g.shape.Spans*g.chunks)
	g.wide = g.decode && f.b.variant && z.rows > invariantRows
	if g.decode {
		g.most = launch.RowBucket(z.longest)
	} else {
		g.most = (z.longest + 127) &^ 127
	}
	return g
}

// rest is the section behind all Taps, or all there is without one: without the head
// where it runs on no row.
func (f *forward) rest(tapped bool) section {
	s := section{ops: f.ops, told: f.told, shown: -1, first: true, last: true}
	switch {
	case tapped:
		s = f.sections[len(f.sections)-1]
	case f.parts != nil:
		s = f.parts[len(f.parts)-1]
	}
	if f.now.hidden {
		s.ops = s.told
	}
	if f.now.head == 0 && f.program.HeadOp() != nil {
		s.ops = s.ops[:len(s.ops)-1]
	}
	return s
}

// show runs the sections up to the last Tap, and shows what they leave. The host runs its
// experts between them.
func (f *forward) show(ctx context.Context, tap func(int, []float32)) error {
	taps := 0
	for i, s := range f.sections[:len(f.sections)-1] {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := f.begin(s); err != nil {
			return err
		}
		if err := f.wait(); err != nil {
			return err
		}
		if s.leaves != nil {
			if err := f.runHost(s.leaves); err != nil {
				return err
			}
		}
		if s.shown < 0 {
			continue
		}
		states, err := f.shown(i)
		if err != nil {
			return err
		}
		tap(taps, states)
		taps++
	}
	return nil
}

// shown is what section i shows, once it is over.
func (f *forward) shown(i int) ([]float32, error) {
	x := f.sections[i].shown
	states := make([]float32, f.values.Rows*f.widths[x])
	return states, f.b.device.DownloadFloats(states, f.now.buffers[x].f32)
}

// Wait waits for the forward that Start began.
func (f *forward) Wait() ([]backend.Result, error) {
	b := f.b
	switch {
	case b.running != f:
		return nil, errNotStarted
	case b.device == nil:
		return nil, errClosed
	}
	b.running = nil
	b.device.Context.Enter()
	defer b.device.Context.Leave()
	if err := f.wait(); err != nil {
		return nil, err
	}
	return f.results()
}

// Close drops the graphs.
func (f *forward) Close() {
	b := f.b
	if f.closed || b.device == nil {
		return
	}
	f.closed = true
	b.device.Context.Enter()
	defer b.device.Context.Leave()
	if b.running == f {
		b.running = nil
		b.device.Stream.Synchronize() // its error has nobody left to see it
	}
	b.graphs.drop(f)
	f.free()
}
