package decoder

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"windrow/model"
)

// Sequence is one generation that its owner drives: Plan appends the rows of
// its next forward to a batch, which may hold rows of other sequences, and
// Absorb takes the results. [Generate] is such a loop over one.
//
// A sequence holds no clock and starts nothing by itself. Plan changes nothing:
// after a forward that failed or was cancelled, or whose batch was never run,
// it may be called again, then or much later. It is not safe for concurrent use.
type Sequence struct {
	cache   *model.Cache
	prompt  []int32
	o       Options
	detok   Detokenizer
	sampler *sampler
	stepper stepper
	rows    rows        // of the last Plan
	batch   model.Batch // of forwards that are its own (Generate)
	quiet   bool        // nobody looks at Steps
	sum     Summary
	// need is how many tokens must be permanent before the next step: the prompt's,
	// or, in a cache that has lost some, those that were. started: the stepper has
	// seen the prompt.
	need    int
	started bool
	told    int // the last token of the prompt that PromptLogprobs has told of
	text    strings.Builder
	stops   stopMatcher
	emitted []emission // since the last call of events
	flushed bool
}

// emission is a token for the owner, with the text that it makes visible.
type emission struct {
	token    int32
	logprobs *Logprobs // nil: nobody asked
	piece    string
	hidden   bool // a stop id
}

// An Event is what happened to a sequence: [Prefilled], [PromptLogprobs], [Token],
// [Logprobs], [Text], [Step] or [Finished].
type Event interface{ event() }

// Prefilled says that Done of the Total prompt tokens that the cache lacked are
// permanent.
type Prefilled struct{ Done, Total int }

// Token is a generated token, stop ids included.
type Token int32

// Text is what committed tokens add to the visible text; never half a character,
// nor what may be the beginning of a stop string.
type Text string

// Finished is the last event.
type Finished struct{ Reason FinishReason }

func (Prefilled) event() {}
func (Token) event()     {}
func (Text) event()      {}
func (Step) event()      {}
func (Finished) event()  {}

// NewSequence begins a generation that continues prompt by up to o.MaxTokens
// tokens. The cache's permanent tokens must be prompt[:cache.Base()]: only the
// rest is prefilled. Where the whole prompt is there and the mode needs the
// result of its last row, that row is computed again.
//
// detok may be nil: then there is no text, and no stop string is possible.
//
// Errors: *OptionError for an option out of range or an empty prompt,
// *ContextError where prompt and MaxTokens exceed the cache, or the cache's own.
func NewSequence(cache *model.Cache, prompt []int32, o Options, detok Detokenizer) (*Sequence, error) {
	if err := o.check(prompt, cache.Base(), cache.Capacity(), cache.MaxRows(), detok != nil); err != nil {
		return nil, err
	}
	if o.Mode == WeDLM && cache.Recurrent() {
		return nil, ErrRecurrent
	}
	s := &Sequence{cache: cache, prompt: prompt, o: o, detok: detok, stops: stopMatcher{stops: o.StopStrings}, need: len(prompt)}
	s.sampler = newSampler(o.Sampling, o.Vocabulary, prompt)
	s.sampler.tell = o.Logprobs
	if o.Constraint != nil {
		s.sampler.constrained = constrained{
			at: o.Constraint.Clone(), ids: int(o.Vocabulary.Size),
			bars: model.Bars{Limit: o.Vocabulary.Size, Except: o.Vocabulary.MaskID},
		}
	}
	switch o.Mode {
	case WeDLM:
		s.stepper = newWeDLM(o, s.sampler)
	case Verified:
		v, err := newVerified(o, s.sampler, prompt, min(o.stepRows(), cache.StepRows()))
		if err != nil {
			return nil, err
		}
		s.stepper = v
		if v.head != nil {
			v.head.cache = cache
		}
	default:
		s.stepper = &autoregressive{s: s.sampler}
	}
	if s.stepper.needsPrompt() && cache.Base() == len(prompt) {
		if _, err := cache.Truncate(len(prompt) - 1); err != nil {
			return nil, fmt.Errorf("rerun the prompt's last token: %w", err)
		}
	}
	s.sum.Stats.PromptTokens, s.sum.Stats.CachedTokens = len(prompt), cache.Base()
	if !s.Prefilling() {
		s.started = true
		if err := s.stepper.start(model.Result{}, choices{}, s.emit); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Move makes the sequence go on in another cache, whose permanent tokens must be the
// first cache.Base() of Permanent: what that lacks of them is run again, which nothing
// shows. So a sequence whose cache was taken away (preempted) can wait without one. The
// caches are the owner's to close.
//
// Run again, a token has the bits that it had, where rows of a forward keep theirs in
// spans of up to Options.InvariantRows rows.
func (s *Sequence) Move(cache *model.Cache) error {
	if base, room := cache.Base(), s.cache.Capacity(); base > s.held() || cache.Capacity() < room || cache.MaxRows() < s.cache.MaxRows() || cache.StepRows() < s.cache.StepRows() {
		return fmt.Errorf("move %d tokens to a cache that holds %d of %d, %d rows a forward: want a part of them, %d and %d",
			s.held(), base, cache.Capacity(), cache.MaxRows(), room, s.cache.MaxRows())
	}
	s.need = max(s.need, s.held())
	s.cache = cache
	if h := s.head(); h != nil {
		h.cache = cache
	}
	return nil
}

// head is the drafter that is the model's own head; nil: there is none.
func (s *Sequence) head() *headDrafter {
	if v, ok := s.stepper.(*verified); ok {
		return v.head
	}
	return nil
}

// held is how many tokens are permanent, or were before the cache lost some.
func (s *Sequence) held() int {
	if s.Prefilling() && s.started {
		return s.need
	}
	return s.cache.Base()
}

// Permanent are the tokens whose keys and values are final: the first of the prompt, or
// all of it and some that were generated.
func (s *Sequence) Permanent() []int32 { return s.tokens(0, s.held()) }

// tokens are those from one position up to another, of prompt and output.
func (s *Sequence) tokens(from, to int) []int32 {
	n := len(s.prompt)
	if to <= n {
		return s.prompt[from:to]
	}
	return slices.Concat(s.prompt[min(from, n):], s.sum.Tokens[max(from-n, 0):to-n])
}

// CommonPrefix is how many tokens two texts begin with alike: what a cache of one holds
// of the other.
func CommonPrefix(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// Done reports whether the generation has ended.
func (s *Sequence) Done() bool { return s.sum.FinishReason != "" }

// Prefilling reports whether the next forward is one of the prompt's, or, after Move,
// of tokens that are run again.
func (s *Sequence) Prefilling() bool { return s.cache.Base() < s.need }

// Left is how many rows of the prompt, or of what is run again, are still to be run.
func (s *Sequence) Left() int { return max(0, s.need-s.cache.Base()) }

// Cache is the sequence's cache.
func (s *Sequence) Cache() *model.Cache { return s.cache }

// Tokens is how many tokens were generated so far.
func (s *Sequence) Tokens() int { return len(s.sum.Tokens) }

// Summary is what was generated so far. Its times are the owner's to fill in.
func (s *Sequence) Summary() Summary {
	sum := s.sum
	sum.Stats.Tokens = len(sum.Tokens)
	sum.Text = s.text.String()
	return sum
}

// Plan appends one span to b: the next chunk of the prompt, of at most that many
// rows (0: as many as the options and the cache allow), or the rows of the next
// step. Only an elastic sequence that has a price lets most cut that: it feeds what is
// worth the most of so many rows, whatever the price (0: what is worth the price). It
// adds what the sequence wants of its rows to b.Want. A sequence that is done appends
// nothing.
func (s *Sequence) Plan(b *model.Batch, most int) {
	if s.Done() {
		return
	}
	first := len(b.Tokens)
	if s.Prefilling() {
		s.planPrompt(b, most)
	} else {
		s.rows.reset(int32(s.cache.Base()), s.o.Vocabulary.MaskID, s.sampler.needsLogits(), b)
		if v, ok := s.stepper.(*verified); ok {
			v.limit = most
		}
		s.stepper.plan(&s.rows)
	}
	b.Spans = append(b.Spans, model.Span{
		Cache: s.cache, First: first, Rows: len(b.Tokens) - first, Prompt: s.Prefilling() && s.cache.Base() < len(s.prompt) && s.o.PromptLogprobs == nil,
	})
}

// planPrompt appends the next chunk of the prompt, or of what is run again. Chunks of
// a prompt end at multiples of their length, unless Options say that it does not matter:
// a token's chunk depends on where it stands alone, so that a prompt whose beginning is
// cached has the bits of one that is not.
func (s *Sequence) planPrompt(b *model.Batch, most int) {
	from := s.cache.Base()
	n := s.promptRows()
	switch {
	case from < len(s.prompt) && s.o.PrefillAnywhere:
		n = min(n, len(s.prompt)-from)
	case from < len(s.prompt):
		n = min(n-from%n, len(s.prompt)-from)
	default:
		n = min(n, s.need-from)
		if s.o.InvariantRows > 0 {
			n = min(n, s.o.InvariantRows)
		}
	}
	n = min(n, s.cache.MaxRows())
	if most > 0 {
		n = min(n, most)
	}
	s.rows.reset(int32(from), 0, s.sampler.needsLogits(), b)
	last := -1 // the row whose result begins the generation
	if !s.started && s.stepper.needsPrompt() {
		last = len(s.prompt) - 1
	}
	drafts := s.head() != nil
	for i, token := range s.tokens(from, from+n) {
		tell := s.wantPrompt(from + i)
		s.rows.add(i, Slot{Token: token, Filled: true}, drafts || tell || from+i == last)
		if drafts {
			w := &b.Want[len(b.Want)-1]
			if w.Hidden = true; !tell && from+i != last {
				w.Bare, w.Logits = true, false
				s.rows.bare++
			}
		}
		if tell {
			b.Want[len(b.Want)-1].Logits = true
		}
		if from+i == last {
			s.rows.allow(s.sampler, s.sampler.at, false)
			s.rows.wantLogprobs(s.sampler)
		}
	}
}

// Elastic reports whether the rows of the next step are the sequence's to choose: its
// text does not depend on them, so that Share can make it feed fewer or more.
func (s *Sequence) Elastic() bool {
	v, ok := s.stepper.(*verified)
	if !ok || s.Prefilling() || s.Done() {
		return false
	}
	_, adaptive := v.control.(*verifiedControl)
	return adaptive
}

// Share tells an elastic sequence what the rows of its next steps cost, and nil that
// its forwards are its own.
func (s *Sequence) Share(p *Price) {
	if v, ok := s.stepper.(*verified); ok {
		v.price = p
	}
}

// Worths appends to list what the next step of an elastic sequence that has a price is
// worth in tokens by its rows, from 1 up to the most that it could feed: what it brings
// itself, and what the drafts that it makes are worth later. It appends nothing where the
// price alone decides: drafts that a constraint forces are not weighed against others.
func (s *Sequence) Worths(list []float64) []float64 {
	v, ok := s.stepper.(*verified)
	if !ok || v.price == nil || s.Prefilling() || s.Done() {
		return list
	}
	c, ok := v.control.(*verifiedControl)
	drafts := classes(v.fill[1:])
	if !ok || len(drafts) < len(v.fill)-1 {
		return list
	}
	c.choose(drafts, v.most(len(v.fill)), v.price, 0)
	return c.worths(list)
}

// Wanted is how many results the last Plan asked for.
func (s *Sequence) Wanted() int { return s.rows.wanted }

// Absorb takes the results of the forward of the last Plan's rows, as many as
// it wanted and in their order, makes permanent what follows from them, and
// returns what happened. Beside an error the events before it are returned;
// results that cannot be used change nothing.
func (s *Sequence) Absorb(results []model.Result) ([]Event, error) {
	if err := s.usable(results); err != nil {
		return nil, err
	}
	var step *Step
	var events []Event
	var err error
	if s.Prefilling() {
		events, err = s.absorbPrompt(results)
	} else {
		step, err = s.absorbStep(results)
	}
	events = s.takeEvents(events)
	if step != nil && err == nil {
		events = append(events, *step)
	}
	if s.Done() {
		events = append(s.flush(events), Finished{s.sum.FinishReason})
	}
	return events, err
}

// markEvery is after how many tokens of a prompt its states are kept for others that
// begin alike (model.Cache.Mark).
const markEvery = 2048

// absorbPrompt makes a chunk of the prompt permanent.
func (s *Sequence) absorbPrompt(results []model.Result) (events []Event, err error) {
	from := s.cache.Base()
	if err := s.cache.Commit(len(s.rows.slots)); err != nil {
		return nil, err
	}
	if h := s.head(); h != nil {
		h.prompted(from, results)
	}
	if base := s.cache.Base(); base/markEvery > (base-len(s.rows.slots))/markEvery {
		s.cache.Mark()
	}
	if s.started {
		return nil, nil // nobody has to know that it is run again
	}
	events = s.tellPrompt(events, from, results)
	cached := s.sum.Stats.CachedTokens
	events = append(events, Prefilled{s.cache.Base() - cached, len(s.prompt) - cached})
	if s.Prefilling() {
		return events, nil
	}
	s.started = true
	// What follows a prompt another time, an answer to be thought over or the next turn
	// without what was thought in this one, begins about here.
	s.cache.Mark()
	var last model.Result
	if len(results) > 0 {
		last = results[len(results)-1]
	}
	return events, s.stepper.start(last, allowedOf(s.rows.allowed, 0), s.emit)
}

// absorbStep commits a step's rows. There is no Step where nobody looks at it.
func (s *Sequence) absorbStep(results []model.Result) (*Step, error) {
	base := s.cache.Base()
	s.count()
	out, err := s.stepper.absorb(results, s.emit)
	s.charge(&out.by)
	if bad := s.cache.Commit(out.commit); bad != nil {
		return nil, bad
	}
	s.sum.Stats.Drafts += out.drafts
	s.sum.Stats.Accepted += out.accepted
	if s.quiet {
		return nil, err
	}
	window := s.rows.window()
	committed := make([]int32, out.commit)
	for i := range committed {
		committed[i] = window[i].Token
	}
	return &Step{
		Slots: window, Base: base, Committed: committed,
		Entropy: out.entropy, Filled: out.filled, Drafts: out.drafts, Accepted: out.accepted,
	}, err
}

// charge adds what drafters did in a step, and what it cost: the rows beyond the first
// share what they add to the forward.
func (s *Sequence) charge(by *Drafters) {
	if c := s.o.Cost; c != nil {
		rows := len(s.rows.slots)
		row := 0.0
		if rows > 1 {
			row = max(0, c.Ratio(rows)-1) / float64(rows-1)
		}
		for kind := range by {
			x := &by[kind]
			fed := x.Drafts
			if DrafterKind(kind) == MaskDrafter {
				fed += x.Rows
			}
			x.Cost = row*float64(fed) + x.Seconds/c.Seconds(1)
		}
	}
	s.sum.Stats.Drafters.Add(by)
}

// Draft has a drafter that runs forwards of its own (Options.NewDrafter, Options.Head)
// propose tokens for the next step. It comes before Plan, and may run any number of forwards, so long
// as ctx lasts; where there is no such drafter, or nothing to draft, it does nothing.
// After an error it may be called again, or the step be planned without it.
func (s *Sequence) Draft(ctx context.Context) error {
	return s.draft(ctx, nil)
}

// draft is Draft, whose forwards are run in turn with others' where t is not nil.
func (s *Sequence) draft(ctx context.Context, t *turn) (err error) {
	if !s.Drafts() {
		return nil
	}
	v := s.stepper.(*verified)
	if s.Prefilling() {
		if t != nil {
			t.unweighed = true
		}
		err = v.beside.(promptDrafter).readPrompt(ctx, t, s.prompt[:min(s.cache.Base(), len(s.prompt))])
	} else {
		err = v.draft(ctx, t)
	}
	if err != nil && v.leaveHead(err) && s.o.Draft != DraftMTP {
		return nil
	}
	if err != nil {
		return fmt.Errorf("draft at %d: %w", s.cache.Base(), err)
	}
	return nil
}

// HasDrafter reports whether a drafter stands beside the sequence that runs forwards of
// its own.
func (s *Sequence) HasDrafter() bool {
	v, ok := s.stepper.(*verified)
	return ok && v.beside != nil
}

// Drafts reports whether Draft may run forwards for the next step.
func (s *Sequence) Drafts() bool {
	v, ok := s.stepper.(*verified)
	if !ok || v.beside == nil || s.Done() {
		return false
	}
	_, reads := v.beside.(promptDrafter)
	return !s.Prefilling() && v.undrafted || s.Prefilling() && reads
}

// Close frees what drafters hold. It need not be called of a sequence without one that
// runs forwards; the cache stays the owner's.
func (s *Sequence) Close() {
	if v, ok := s.stepper.(*verified); ok {
		v.close()
	}
}

// count adds the forward of s.rows to the counters.
func (s *Sequence) count() {
	masks := 0
	for _, slot := range s.rows.slots {
		if !slot.Filled {
			masks++
		}
	}
	t := &s.sum.Stats
	if t.Forwards == 0 {
		t.LeastMasks = masks
	}
	t.LeastMasks, t.MostMasks = min(t.LeastMasks, masks), max(t.MostMasks, masks)
	t.Masks += masks
	t.Rows += len(s.rows.slots)
	t.Forwards++
}

// usable checks results before anything depends on them.
func (s *Sequence) usable(results []model.Result) error {
	if s.sampler.err != nil {
		return s.sampler.err
	}
	if len(results) != s.rows.wanted {
		return fmt.Errorf("forward of %d rows at %d: %d results, want %d", len(s.rows.slots), s.cache.Base(), len(results), s.rows.wanted)
	}
	for i, r := range results {
		if s.head() != nil && len(r.Hidden) != s.head().Width {
			return fmt.Errorf("position %d: a hidden state of %d, want %d", s.rows.wantedAt[i], len(r.Hidden), s.head().Width)
		}
		if i < s.rows.bare {
			continue
		}
		if math.IsNaN(float64(r.Entropy)) || r.Argmax < 0 {
			return fmt.Errorf("position %d: the model's logits are not numbers (entropy %v, argmax %d)", s.rows.wantedAt[i], r.Entropy, r.Argmax)
		}
		// The model bars these since it was loaded: another vocabulary is meant here.
		if n := s.o.Vocabulary.Size; n > 0 && r.Argmax >= n {
			return fmt.Errorf("position %d: the model chose id %d, the vocabulary has %d", s.rows.wantedAt[i], r.Argmax, n)
		}
	}
	return nil
}

// Stop ends the generation from outside, with a reason or, beside an error of
// the owner's, none: text that waited for the end of a character or of a
// possible stop string becomes visible. What was planned is forgotten.
func (s *Sequence) Stop(reason FinishReason) []Event {
	if s.Done() {
		return nil
	}
	events := s.flush(s.takeEvents(nil))
	if s.sum.FinishReason == "" {
		s.sum.FinishReason = reason
	}
	if s.Done() {
		events = append(events, Finished{s.sum.FinishReason})
	}
	return events
}

// emit is the stepper's emitter: it decides whether the generation ends here.
func (s *Sequence) emit(token int32, p *Logprobs) bool {
	if s.Done() {
		return false
	}
	s.sum.Tokens = append(s.sum.Tokens, token)
	s.sampler.observe(token)
	e := emission{token: token, logprobs: p, hidden: slices.Contains(s.o.StopIDs, token)}
	var stopped bool
	if !e.hidden && s.detok != nil {
		e.piece, stopped = s.stops.push(s.detok.Push(token))
	}
	switch {
	case e.hidden || stopped:
		s.sum.FinishReason = FinishStop
	case len(s.sum.Tokens) >= s.o.MaxTokens:
		s.sum.FinishReason = FinishLength
	}
	s.emitted = append(s.emitted, e)
	if stopped {
		s.detok = nil // what follows the stop string is not shown
	}
	return !s.Done()
}

// takeEvents appends what was emitted, which is permanent now or right by
// construction.
func (s *Sequence) takeEvents(events []Event) []Event {
	events = slices.Grow(events, 2*len(s.emitted)+2) // with their text, and how the step ends
	for _, e := range s.emitted {
		s.text.WriteString(e.piece)
		events = append(events, Token(e.token))
		if e.logprobs != nil {
			events = append(events, *e.logprobs)
		}
		if e.piece != "" && !e.hidden {
			events = append(events, Text(e.piece))
		}
	}
	s.emitted = s.emitted[:0]
	return events
}

// flush appends the text that waited, once.
func (s *Sequence) flush(events []Event) []Event {
	if s.detok == nil || s.flushed {
		return events
	}
	s.flushed = true
	piece, stopped := s.stops.push(s.detok.Flush())
	if stopped {
		s.sum.FinishReason = FinishStop
	} else {
		piece += s.stops.flush()
	}
	s.text.WriteString(piece)
	if piece == "" {
		return events
	}
	return append(events, Text(piece))
}
