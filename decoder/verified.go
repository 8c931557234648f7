package decoder

import (
	"context"
	"errors"
	"math"
	"slices"

	"windrow/model"
)

// verified lets the window draft and the same weights check: the output is
// ar's, token for token.
//
//	start: prefill gives g, the causal token after the prompt. emit g. fill = [g]
//	step:  rows = fill, then min(W, what max tokens leaves) masks
//	       p_r = the causal distribution of row r
//	       ok = 1; while draft fill[ok] is what is drawn from p_{ok-1}: emit it, ok++
//	       commit fill[0..ok)
//	       emit a, drawn from p_{ok-1}. fill' = [a]
//	       if nothing was rejected: append drafts of masks 1, 2, … while H_j + λ·j < τ
//
// As in ar a token is emitted as soon as it is known, one forward before its keys and
// values are permanent, and the last one is never fed.
//
// Other drafters may draft in the masks' place, behind a rejection too: what followed the
// same tokens before (lookup), or what a smaller model says. The masks then follow their
// drafts.
//
// What a constraint forces (Forcer) is drafted without masks, at any of these places,
// also behind a rejection. A control knows nothing of it: neither of the rows nor of
// the tokens that they bring.
//
// A draw depends on the seed, the token's position and the distribution alone
// (drawKey), so a is ar's token, greedy or sampled, whatever was drafted.
//
// With an adaptive window, masks draft whatever their entropy: a control, which
// learns what drafts of which entropy are worth, drops drafts from the right
// and chooses the masks. τ and λ then only say, by their absence or 0, that
// nothing is to be drafted.
//
// Rows that cannot change a committed token are left out: masks whose λ·j
// alone reaches τ, and what lies right of a drafted stop id.
type verified struct {
	s       *sampler
	rule    fillRule
	window  int
	stops   []int32
	control control
	price   *Price  // nil: the forward is the sequence's own
	limit   int     // rows of a step that has a price, at most; 0: by the price
	fill    []draft // fill[0] is right by construction, and emitted
	// fed is how many of fill are fed in the planned forward, and masks how many
	// masks follow them.
	fed, masks int
	left       int // tokens that may still be fed, all but the last: never fewer than fill
	rows       int // of a step, at most
	forcing    forcing
	// prompt is what drafters are told at the start. lookup drafts in absorb, as it runs
	// no forward; beside does in draft, before the next plan. Either may be nil.
	prompt         []int32
	lookup, beside Drafter
	head           *headDrafter // beside, where it is the model's own head
	atMost         int          // drafts of beside's that are of use; 0: any number
	always         bool         // they are, whatever is expected of them
	undrafted      bool         // beside has not drafted for the next plan
	made           int          // rows that beside has run for it
	seconds        float64      // and what they took, by its own account
	// allowed are the ids that each checked row of the last plan may choose.
	allowed []choices
}

// newVerified begins one whose steps have some rows at most.
func newVerified(o Options, s *sampler, prompt []int32, rows int) (*verified, error) {
	v := &verified{s: s, rule: newFillRule(o), stops: o.StopIDs, control: fixedControl{}, left: o.MaxTokens - 1, rows: rows, forcing: forcing{reach: mostReach}, prompt: prompt}
	if o.Draft == DraftNone {
		v.forcing.reach = 0
	}
	if o.Draft == DraftLookup || o.Draft == DraftAuto && (o.Cost != nil || o.Vocabulary.MaskID < 0) {
		v.lookup = newLookup(prompt, o.MaxTokens)
	}
	if o.Draft == DraftModel {
		d, err := o.NewDrafter()
		if err != nil {
			return nil, err
		}
		v.beside = d
	}
	if o.headDrafts() {
		v.head = newHeadDrafter(*o.Head, prompt)
		v.beside = v.head
		o.Window, v.atMost = 0, o.Drafts
		if o.Cost == nil && v.atMost == 0 {
			v.atMost = headDrafts
		}
		v.always = o.Cost == nil
	}
	if o.Vocabulary.MaskID < 0 || !o.Draft.masks() {
		o.Window = 0
	}
	if o.Cost != nil {
		o.Window = min(o.Window, maxAdaptive)
		if v.rule.below(0, 0) {
			v.rule.tau = math.Inf(1)
		}
	}
	// Mask 0 only holds the place of the causal token: without a mask 1 that
	// could pass τ there is nothing to draft.
	for v.window < o.Window && v.rule.below(0, v.window) {
		v.window++
	}
	if v.window == 1 {
		v.window = 0
	}
	if o.Cost != nil && (v.window > 0 || v.lookup != nil || v.beside != nil) {
		v.control = newVerifiedControl(o.Cost, v.window, v.rows, o.Experience)
	}
	if o.Cost == nil && o.Experience != nil {
		v.control = newRecordingControl(o.Experience)
	}
	return v, nil
}

func (v *verified) needsPrompt() bool { return true }

func (v *verified) start(last model.Result, allowed choices, emit emitter) error {
	p, err := v.s.distribution(last, nil, allowed)
	if err != nil {
		return err
	}
	first := v.s.draw(p, 0)
	v.fill = []draft{{token: first}}
	if !emit(first, v.s.logprobs(last, first)) {
		return nil
	}
	if v.beside != nil { // lookup has read it
		v.beside.Follow(v.prompt, nil)
	}
	for _, d := range v.drafters() {
		d.Follow([]int32{first}, []model.Result{last})
	}
	masked, err := v.ofMasks(nil)
	if err == nil {
		err = v.take(masked)
	}
	return err
}

// drafters are those beside the masks.
func (v *verified) drafters() (list []Drafter) {
	for _, d := range []Drafter{v.lookup, v.beside} {
		if d != nil {
			list = append(list, d)
		}
	}
	return list
}

// close frees what drafters hold.
func (v *verified) close() {
	for _, d := range v.drafters() {
		d.Close()
	}
	v.lookup, v.beside = nil, nil
}

// choose decides what the next forward feeds.
func (v *verified) choose() {
	feed, masks := v.control.choose(classes(v.fill[1:]), v.most(len(v.fill)), v.price, v.limit)
	through := through(v.fill, feed)
	v.fed = v.forcing.worth(v.fill, through, v.price)
	v.masks = min(masks, v.most(v.fed))
	if v.fed < through { // masks would draft what is forced
		v.masks = 0
	}
}

// most is how many masks can matter behind so many filled rows.
func (v *verified) most(filled int) int {
	if v.stop(v.fill[filled-1].token) {
		return 0
	}
	return min(v.window, v.left-filled, v.rows-filled)
}

// full reports whether no more than n tokens can be fed.
func (v *verified) full(n int) bool { return n >= min(v.left, v.rows) }

func (v *verified) stop(token int32) bool { return slices.Contains(v.stops, token) }

func (v *verified) plan(r *rows) {
	v.choose()
	// A checked row is constrained by its own prefix, which is known now.
	at := v.s.at
	if at != nil {
		at = at.Clone()
	}
	for i, d := range v.fill[:v.fed] {
		r.add(i, Slot{Token: d.token, Filled: true}, true)
		ended := at != nil && i > 0 && (v.stop(d.token) || !at.Advance(d.token))
		r.batch.Want[len(r.batch.Want)-1].Hidden = v.head != nil
		if at != nil {
			r.allow(v.s, at.Clone(), ended)
		}
		r.wantLogprobs(v.s)
	}
	v.allowed = r.allowed
	for j := range v.masks {
		r.add(v.fed+j, Slot{}, true)
		if at != nil && !v.s.needsLogits() {
			r.batch.Want[len(r.batch.Want)-1].TopK = constrainedTop
		}
	}
}

func (v *verified) absorb(results []model.Result, emit emitter) (out outcome, err error) {
	checked := v.fill[:v.fed]
	mask := results[len(checked):]
	out.drafts = len(checked) - 1
	defer func() { v.count(&out, checked, len(mask)) }()
	for {
		out.accepted = out.commit
		out.commit++ // right by construction, or accepted below
		// Row commit-1 saw prompt and emitted tokens only: it is ar's row.
		p, err := v.s.distribution(results[out.commit-1], nil, allowedOf(v.allowed, out.commit-1))
		if err != nil {
			return out, err
		}
		next := v.s.draw(p, 0)
		more := emit(next, v.s.logprobs(results[out.commit-1], next))
		all := out.commit == len(checked)
		if !all && checked[out.commit].token == next {
			if !more {
				out.accepted = out.commit
				out.commit++
				return out, nil
			}
			continue
		}
		v.left -= out.commit
		v.fill = []draft{{token: next}}
		v.forcing.observe(checked[1:], out.accepted)
		v.control.observe(seen(checked[1:], out.accepted, len(mask), out.commit))
		if all {
			out.entropy = entropies(mask)
		}
		if !more {
			return out, nil
		}
		drafted := mask[:0]
		if all {
			drafted = mask
		}
		masked, err := v.ofMasks(drafted)
		v.control.drafted(classes(masked))
		for _, d := range v.drafters() {
			d.Follow(certain(checked[1:out.commit], next), results[:out.commit])
		}
		if err == nil {
			err = v.take(masked)
		}
		for i, d := range v.fill {
			out.filled = append(out.filled, Fill{i, d.token})
		}
		return out, err
	}
}

// count says who proposed what, and what it took.
func (v *verified) count(out *outcome, checked []draft, masks int) {
	out.by.count(checked[1:], out.accepted)
	out.by[MaskDrafter].Rows += masks
	if v.beside != nil {
		x := &out.by[v.beside.Kind()]
		x.Rows += v.made
		x.Seconds += v.seconds
	}
	v.made, v.seconds = 0, 0
}

// ofMasks is what a constraint forces behind the token that is right by construction,
// and what the masks propose there while they pass τ.
func (v *verified) ofMasks(mask []model.Result) ([]draft, error) {
	p := v.propose(MaskDrafter, 0)
	for p.open {
		j := len(p.ahead)
		if j >= len(mask) || !v.rule.below(mask[j].Entropy, j) || j >= v.rows {
			break
		}
		token, ok, err := v.drawDraft(mask[j], p.ahead, p.at, j)
		if err != nil || !ok {
			return p.list, err
		}
		p.put(draft{token: token, class: entropyClass(mask[j].Entropy)})
		p.settle()
	}
	return p.list, nil
}

// take appends to fill what the masks have drafted, or, where that promises more, what a
// lookup drafts. A drafter that runs forwards comes later, where neither did.
func (v *verified) take(masked []draft) error {
	list := masked
	if v.lookup != nil {
		p := v.propose(v.lookup.Kind(), 0)
		if err := v.lookup.Propose(context.Background(), p); err != nil {
			return err
		}
		if v.control.prefers(classes(p.list), classes(masked)) {
			list = p.list
		}
	}
	v.fill = append(v.fill, list...)
	v.undrafted = v.beside != nil
	return nil
}

// draft has the drafter that runs forwards draft for the next plan, once.
func (v *verified) draft(ctx context.Context, t *turn) error {
	if !v.undrafted {
		return nil
	}
	// What a lookup has found costs nothing.
	found := v.fill[1:]
	if most := v.atMost; len(found) > 0 {
		if most == 0 {
			most = mostBlind
		}
		if expected(v.control, classes(found)) >= v.control.hope(most) {
			v.undrafted = false
			return nil
		}
	}
	seconds := v.beside.Seconds()
	if t != nil {
		seconds, t.unweighed = t.costs.Seconds(1, seconds), true
	}
	p := v.propose(v.beside.Kind(), seconds)
	p.turn, p.most, p.always = t, v.atMost, v.always
	err := v.beside.Propose(ctx, p)
	if errors.Is(err, errEnough) {
		err = nil
	}
	v.made += p.made
	v.seconds += p.took
	if err != nil {
		return err
	}
	if len(found) == 0 || expected(v.control, classes(p.list)) > expected(v.control, classes(found)) {
		v.fill = append(v.fill[:1], p.list...)
	}
	v.undrafted = false
	return nil
}

// leaveHead has a head propose nothing from now on that an error shows to be broken, and
// reports whether it was one.
func (v *verified) leaveHead(err error) bool {
	if v.head == nil || !errors.As(err, new(*model.NotFiniteError)) {
		return false
	}
	v.head, v.beside, v.undrafted, v.made, v.seconds = nil, nil, false, 0, 0
	return true
}

// headDrafts is how many drafts of a head are fed where nothing is known of costs: of
// published models some two of them stand.
const headDrafts = 3

// headDrafts reports whether the model's head drafts: where it is asked for, or where
// anybody may and the masks, if there are some, are expected to bring less.
func (o Options) headDrafts() bool {
	switch {
	case o.Head == nil:
		return false
	case o.Draft != DraftAuto:
		return o.Draft == DraftMTP
	case o.Vocabulary.MaskID < 0:
		return true
	}
	return o.Cost != nil && o.headRate() > o.maskRate()
}

// headRate and maskRate are the tokens that a one-row forward's time is expected to bring
// with drafts of the head, and of masks: by c(rows) and what was seen of the model. Of
// masks of which nothing was seen the best is expected: an answer shows it, and without
// one a head that is good enough would be all that is ever tried.
func (o Options) headRate() (best float64) {
	hopes := o.Experience.hopes()
	took := o.Head.Seconds / o.Cost.Seconds(1)
	earned, sure := 1.0, 1.0
	for d := 1; d <= mostBlind && (o.Drafts == 0 || d <= o.Drafts); d++ {
		chance := prior
		if d <= len(hopes) {
			chance = hopes[d-1]
		}
		sure *= chance
		earned += sure
		best = max(best, earned/(o.Cost.Ratio(1+d)+float64(d)*took))
	}
	return best
}

func (o Options) maskRate() float64 {
	k := min(o.Window, maxAdaptive) - 1
	if k < 1 {
		return 1
	}
	p := newPolicy(k, o.Cost.ratios(2*(k+1)))
	expected := make([]float64, k)
	o.Experience.chances(nil, expected)
	least := 0.0
	if !o.Experience.sawMasks() {
		least = boldest
	}
	r := newRates(k)
	r.each(expected, func(i int, rate float64) { p.typical.set(i, max(rate, least)) })
	p.solve(nil)
	return p.rate
}

// drawDraft is what a drafter's row says for the place j behind the newest emitted token,
// where that and what is proposed, ahead, stand before it. Under a constraint, which stands
// there, too, that is one which is allowed; false where none is known.
func (v *verified) drawDraft(row model.Result, ahead []int32, at Constraint, j int) (token int32, ok bool, err error) {
	var allowed choices
	if at != nil {
		if !v.s.needsLogits() {
			token, ok = firstAllowed(row, at)
			return token, ok, nil
		}
		allowed.ids = model.NewIDSet(v.s.ids)
		if at.Mask(allowed.ids) != nil {
			return 0, false, nil // the checked row will say so
		}
	}
	q, err := v.s.distribution(row, ahead[1:], allowed)
	if err != nil {
		return 0, false, err
	}
	return v.s.draw(q, j-1), true, nil
}
