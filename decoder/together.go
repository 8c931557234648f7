package decoder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"windrow/model"
)

// Drafting says what forwards for drafts that several sequences share take, and cost.
type Drafting interface {
	// Rows is the most that one has.
	Rows() int
	// Seconds is what one of so many rows takes, where one of a row is told to take alone.
	Seconds(rows int, alone float64) float64
	// Tokens is what forwards of such a time cost all sequences, and to check so many more
	// drafts beside those that are proposed already.
	Tokens(seconds float64, drafts, more int) float64
	// Ran tells of a forward of so many sequences' rows, when it has been run: prepared,
	// where that took longer than it will again.
	Ran(sequences, rows int, alone float64, prepared bool)
	// Learned says that what was done since then will not be done for long.
	Learned()
}

// DraftTogether has the drafters of several sequences propose for their next steps, as
// [Sequence.Draft] does for one. The forwards that they need at the same time, of one
// engine, are one. Where rows have a price it is run for those for whom their next drafts
// are worth it together; who is not among them has proposed enough.
//
// each[i] is the context of sequence i, which ends its drafting; ctx that of the forwards.
// The errors are the sequences', in their order: whoever has one can go on without drafts.
// A forward of several that fails is run again for each alone.
func DraftTogether(ctx context.Context, list []*Sequence, each []context.Context, costs Drafting) (errs []error) {
	errs = make([]error, len(list))
	g := &gathering{costs: costs}
	in := g.whoBegins(list)
	if len(in) == 1 { // nobody to wait for
		t := &turn{gathering: g, ctx: each[in[0]]}
		t.wait = func() bool {
			for _, t := range g.worth([]*turn{t}) {
				g.run(ctx, []*turn{t})
			}
			return true
		}
		errs[in[0]] = list[in[0]].draft(t.ctx, t)
		return errs
	}
	var turns []*turn
	for _, i := range in {
		s := list[i]
		t := &turn{gathering: g, ctx: each[i]}
		t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
			t.wait = func() bool { return yield(struct{}{}) }
			errs[i] = s.draft(t.ctx, t)
		})
		defer t.stop()
		turns = append(turns, t)
	}
	goOn := func(t *turn) bool { _, waits := t.next(); return waits }
	for turns = filter(turns, goOn); len(turns) > 0; turns = filter(turns, goOn) {
		for _, some := range byEngine(turns) {
			some = g.worth(some)
			for len(some) > 0 {
				n := g.fitting(some)
				g.run(ctx, some[:n])
				some = some[n:]
			}
		}
	}
	return errs
}

// filter are those of a list for which keep is true, in its order and its memory.
func filter[T any](list []T, keep func(T) bool) []T {
	return slices.DeleteFunc(list, func(x T) bool { return !keep(x) })
}

// whoBegins are those whose drafters are to begin, by their numbers: where first drafts
// are weighed, those for whom one is worth a forward together with the others'.
func (g *gathering) whoBegins(list []*Sequence) (in []int) {
	var offers []offer
	alone := 0.0
	for i, s := range list {
		if !s.Drafts() {
			continue
		}
		o, seconds, weighed := s.offer()
		switch o.who = i; {
		case !weighed:
			in = append(in, i)
		case o.value > 0:
			offers, alone = append(offers, o), seconds
		}
	}
	for _, o := range offers[:g.best(offers, 0, alone)] {
		in = append(in, o.who)
	}
	slices.Sort(in)
	return in
}

// offer is what a forward would bring to one of those who share it, in tokens, and how
// many rows it has of it.
type offer struct {
	who   int
	value float64
	rows  int
}

// offer is that of the first draft of a sequence, where it is weighed whether there is to
// be one; 0 tokens: it is not worth its own row, or nothing can follow. seconds is what a
// forward of one row takes.
func (s *Sequence) offer() (o offer, seconds float64, weighed bool) {
	v, ok := s.stepper.(*verified)
	if !ok || s.Prefilling() || v.beside == nil || v.price == nil || v.always || !v.undrafted {
		return o, 0, false
	}
	o.rows = 1
	if r, ok := v.beside.(interface{ unread() int }); ok {
		o.rows = r.unread()
	}
	if o.value, weighed = v.control.likely(1, 0); o.value <= v.price.Row || v.stop(v.fill[0].token) || v.full(1) {
		o.value = 0
	}
	return o, v.beside.Seconds(), weighed
}

// gathering is one time that sequences draft together.
type gathering struct {
	costs  Drafting
	drafts int // that were weighed and are proposed
}

// turn is one of several sequences that draft together: their drafters run one after the
// other, each until it needs a forward.
type turn struct {
	*gathering
	ctx  context.Context
	next func() (struct{}, bool) // has it go on, until it waits
	stop func()
	wait func() bool // false: nobody will come

	due due // what it waits for
	// value is what that is expected to bring, in tokens; unweighed: it is run anyway.
	value     float64
	unweighed bool
	results   []model.Result
	err       error
	part      float64 // seconds of the last forward that were its
}

// due is a forward that somebody needs.
type due interface {
	// rows is how many it has, and wanted how many results.
	rows() int
	wanted() int
	// alone is what one of one row takes, in seconds.
	alone() float64
	// beside reports whether it may be a part of the other one, and join makes one of
	// several that are.
	beside(due) bool
	join(list []*turn) due
	run(ctx context.Context) ([]model.Result, error)
	// prepared reports whether the device had something made for it.
	prepared() bool
}

var (
	// errEnough ends the proposing of one for whom the next forward is not worth it.
	errEnough    = errors.New("no more drafts are worth a forward")
	errLeftAlone = errors.New("nobody runs forwards for drafts any more")
)

// forward runs a forward: with those that others wait for, where t is not nil.
func (t *turn) forward(ctx context.Context, f due) ([]model.Result, error) {
	if t == nil {
		return f.run(ctx)
	}
	t.due = f
	if !t.wait() {
		return nil, errLeftAlone
	}
	return t.results, t.err
}

// byEngine parts those who wait by whose forward it is.
func byEngine(list []*turn) (parts [][]*turn) {
	for _, t := range list {
		i := slices.IndexFunc(parts, func(p []*turn) bool { return t.due.beside(p[0].due) })
		if i < 0 {
			i, parts = len(parts), append(parts, nil)
		}
		parts[i] = append(parts[i], t)
	}
	return parts
}

// mostWeighed is how many rows of a sequence are weighed: those of a step.
const mostWeighed = 1 + mostBlind

// worth are those of one engine for whom a forward is worth it together: of those whose
// drafts are expected to bring the most, as many as bring the most beyond what it costs.
func (g *gathering) worth(list []*turn) []*turn {
	var offers []offer
	others := 0
	for i, t := range list {
		if t.unweighed {
			others += t.due.rows()
		} else {
			offers = append(offers, offer{i, t.value, t.due.rows()})
		}
	}
	if len(offers) == 0 { // what a forward costs may not be known
		return list
	}
	n := g.best(offers, others, list[0].due.alone())
	for i, o := range offers {
		t := list[o.who]
		if t.results, t.err = nil, nil; i >= n {
			t.err = errEnough
		}
	}
	g.drafts += n
	return filter(slices.Clone(list), func(t *turn) bool { return t.unweighed || t.err == nil })
}

// best sorts offers by what they bring, and returns how many of them, from the first on,
// bring the most beyond what the forward costs, which has so many rows of others.
func (g *gathering) best(offers []offer, others int, alone float64) (n int) {
	slices.SortStableFunc(offers, func(a, b offer) int { return cmp.Compare(b.value, a.value) })
	cost := func(rows, more int) float64 {
		if rows == 0 {
			return 0
		}
		return g.costs.Tokens(g.costs.Seconds(rows, alone), g.drafts, more)
	}
	most, value, rows := -cost(others, 0), 0.0, others
	for i, o := range offers {
		rows += min(o.rows, mostWeighed) // what it has to read it reads some time
		value += o.value
		if x := value - cost(rows, i+1); x > most {
			most, n = x, i+1
		}
	}
	return n
}

// fitting is how many of them, from the first on, one forward has room for.
func (g *gathering) fitting(list []*turn) (n int) {
	for room := g.costs.Rows(); n < len(list); n++ {
		if room -= list[n].due.rows(); n > 0 && room < 0 {
			break
		}
	}
	return n
}

// run runs what they wait for as one forward.
func (g *gathering) run(ctx context.Context, list []*turn) {
	// Whose request has ended waits no longer.
	list = filter(slices.Clone(list), func(t *turn) bool {
		t.results, t.err = nil, t.ctx.Err()
		return t.err == nil
	})
	if len(list) == 0 {
		return
	}
	run := func(f due, shared int) (results []model.Result, part float64, err error) {
		if results, err = f.run(ctx); err == nil && len(results) != f.wanted() {
			err = fmt.Errorf("a forward for drafts gave %d results, want %d", len(results), f.wanted())
		}
		g.costs.Ran(shared, f.rows(), f.alone(), f.prepared())
		return results, g.costs.Seconds(f.rows(), f.alone()) / float64(shared), err
	}
	f := list[0].due
	if len(list) > 1 {
		f = f.join(list)
	}
	results, part, err := run(f, len(list))
	for _, t := range list {
		switch t.part = part; {
		case err == nil:
			n := t.due.wanted()
			t.results, results = results[:n:n], results[n:]
		case len(list) > 1 && ctx.Err() == nil:
			t.results, t.part, t.err = run(t.due, 1)
		default:
			t.err = err
		}
	}
}

// headForward is a forward of a model's own head for drafts, of n rows, made when it is run.
type headForward struct {
	engine HeadEngine
	row    float64 // seconds of one of a row
	n      int
	batch  *model.DraftBatch
	make   func() *model.DraftBatch // where there is no batch yet
}

func (f *headForward) rows() int      { return f.n }
func (f *headForward) alone() float64 { return f.row }
func (f *headForward) prepared() bool { return f.made().Prepared }
func (f *headForward) wanted() int    { return len(f.made().Want) }

func (f *headForward) made() *model.DraftBatch {
	if f.batch == nil {
		f.batch = f.make()
	}
	return f.batch
}

func (f *headForward) beside(other due) bool {
	g, ok := other.(*headForward)
	return ok && g.engine == f.engine
}

func (f *headForward) run(ctx context.Context) ([]model.Result, error) {
	return f.engine.Draft(ctx, f.made())
}

func (f *headForward) join(list []*turn) due {
	all := new(model.DraftBatch)
	for _, t := range list {
		b := t.due.(*headForward).made()
		first := len(all.Tokens)
		for _, s := range b.Spans {
			s.First += first
			all.Spans = append(all.Spans, s)
		}
		all.Tokens, all.Hidden, all.Want = append(all.Tokens, b.Tokens...), append(all.Hidden, b.Hidden...), shifted(all.Want, b.Want, first)
	}
	return &headForward{engine: f.engine, row: f.row, n: len(all.Tokens), batch: all}
}

// modelForward is a forward of a smaller model.
type modelForward struct {
	engine Engine
	row    float64 // seconds of one of a row
	batch  *model.Batch
}

func (f *modelForward) rows() int      { return len(f.batch.Tokens) }
func (f *modelForward) alone() float64 { return f.row }
func (f *modelForward) prepared() bool { return f.batch.Prepared }
func (f *modelForward) wanted() int    { return len(f.batch.Want) }

func (f *modelForward) beside(other due) bool {
	g, ok := other.(*modelForward)
	return ok && g.engine == f.engine
}

func (f *modelForward) run(ctx context.Context) ([]model.Result, error) {
	return f.engine.Forward(ctx, f.batch)
}

func (f *modelForward) join(list []*turn) due {
	all := new(model.Batch)
	for _, t := range list {
		b := t.due.(*modelForward).batch
		first := len(all.Tokens)
		for _, s := range b.Spans {
			s.First += first
			all.Spans = append(all.Spans, s)
		}
		all.Tokens, all.Positions, all.Want = append(all.Tokens, b.Tokens...), append(all.Positions, b.Positions...), shifted(all.Want, b.Want, first)
	}
	return &modelForward{f.engine, f.row, all}
}

// shifted appends what is wanted of rows that lie further on in another batch.
func shifted(all, want []model.Wanted, first int) []model.Wanted {
	for _, w := range want {
		w.Row += int32(first)
		all = append(all, w)
	}
	return all
}
