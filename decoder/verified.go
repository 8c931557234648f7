package decoder

import (
	"math"
	"slices"

	"windrow/model"
)

// verified lets the window draft and the same weights check: the output is
// ar's, token for token.
//
//	start: prefill gives g, the causal token after the prompt. fill = [g]
//	step:  rows = fill, then min(W, what max tokens leaves) masks
//	       p_r = the causal distribution of row r
//	       ok = 1; while draft fill[ok] is what is drawn from p_{ok-1}: ok++
//	       commit fill[0..ok)
//	       fill' = [a], a drawn from p_{ok-1}
//	       if nothing was rejected: append drafts of masks 1, 2, … while H_j + λ·j < τ
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
	fill    []draft // fill[0] is right by construction
	masks   int     // that follow fill in the next forward
	left    int     // tokens that may still be emitted: never fewer than fill
	// allowed are the ids that each checked row of the last plan may choose.
	allowed []model.IDSet
}

// draft is a token and the entropy of the row that proposed it.
type draft struct {
	token   int32
	entropy float32
}

func newVerified(o Options, s *sampler) *verified {
	v := &verified{s: s, rule: newFillRule(o), stops: o.StopIDs, control: fixedControl{}, left: o.MaxTokens}
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
	if o.Cost != nil && v.window > 0 {
		v.control = newVerifiedControl(o.Cost, v.window)
	}
	return v
}

func (v *verified) needsPrompt() bool { return true }

func (v *verified) start(last model.Result, allowed model.IDSet, _ emitter) error {
	p, err := v.s.distribution(last, nil, allowed)
	if err != nil {
		return err
	}
	v.fill = []draft{{token: v.s.draw(p, 0)}}
	v.choose()
	return nil
}

// choose decides what the next forward feeds.
func (v *verified) choose() {
	feed, masks := v.control.choose(draftEntropies(v.fill), v.most())
	v.fill = v.fill[:1+feed]
	v.masks = min(masks, v.most())
}

// most is how many masks can matter behind the filled rows.
func (v *verified) most() int {
	if v.stop(v.fill[len(v.fill)-1].token) {
		return 0
	}
	return min(v.window, v.left-len(v.fill))
}

func (v *verified) stop(token int32) bool { return slices.Contains(v.stops, token) }

func (v *verified) plan(r *rows) {
	// A checked row is constrained by its own prefix, which is known now.
	at := v.s.at
	if at != nil {
		at = at.Clone()
	}
	for i, d := range v.fill {
		r.add(i, Slot{Token: d.token, Filled: true}, true)
		ended := at != nil && (v.stop(d.token) || !at.Advance(d.token))
		r.allow(&v.s.constrained, at, ended)
	}
	v.allowed = r.allowed
	for j := range v.masks {
		r.add(len(v.fill)+j, Slot{}, true)
		if at != nil && !v.s.needsLogits() {
			r.batch.Want[len(r.batch.Want)-1].TopK = constrainedTop
		}
	}
}

func (v *verified) absorb(results []model.Result, emit emitter) (outcome, error) {
	checked := v.fill
	mask := results[len(checked):]
	out := outcome{drafts: len(checked) - 1}
	for {
		out.accepted = out.commit
		out.commit++ // right by construction, or accepted below
		if !emit(checked[out.commit-1].token) {
			return out, nil
		}
		// Row commit-1 saw prompt and emitted tokens only: it is ar's row.
		p, err := v.s.distribution(results[out.commit-1], nil, allowedOf(v.allowed, out.commit-1))
		if err != nil {
			return out, err
		}
		next := v.s.draw(p, 0)
		all := out.commit == len(checked)
		if all || checked[out.commit].token != next {
			v.left -= out.commit
			v.fill = []draft{{token: next}}
			if all {
				out.entropy = entropies(mask)
				err = v.draft(mask)
			}
			v.control.observe(observation{
				drafts: draftEntropies(checked), accepted: out.accepted, masks: len(mask), tokens: out.commit,
			})
			v.choose()
			for i, d := range v.fill {
				out.filled = append(out.filled, Fill{i, d.token})
			}
			return out, err
		}
	}
}

// draftEntropies are those that a fill's drafts were drawn at.
func draftEntropies(fill []draft) []float32 {
	h := make([]float32, 0, len(fill))
	for _, d := range fill[1:] {
		h = append(h, d.entropy)
	}
	return h
}

// draft appends to fill, which holds the causal token in mask 0's place, what
// the masks propose while they pass τ.
func (v *verified) draft(mask []model.Result) error {
	ahead := []int32{v.fill[0].token}
	at := v.s.at
	if at != nil {
		at = at.Clone()
	}
	for j := 1; j < len(mask) && v.rule.below(mask[j].Entropy, j) && !v.stop(ahead[j-1]); j++ {
		token, ok, err := v.propose(mask[j], ahead, at, j)
		if err != nil {
			return err
		}
		if !ok {
			return nil
		}
		v.fill = append(v.fill, draft{token, mask[j].Entropy})
		ahead = append(ahead, token)
	}
	return nil
}

// propose is what mask j drafts behind ahead. Under a constraint, which stands before
// the last token of ahead, it is one that is allowed; false where none is known.
func (v *verified) propose(mask model.Result, ahead []int32, at Constraint, j int) (token int32, ok bool, err error) {
	var allowed model.IDSet
	if at != nil {
		if !at.Advance(ahead[len(ahead)-1]) {
			return 0, false, nil
		}
		if !v.s.needsLogits() {
			token, ok = firstAllowed(mask, at)
			return token, ok, nil
		}
		allowed = model.NewIDSet(v.s.ids)
		if at.Mask(allowed) != nil {
			return 0, false, nil // the checked row will say so
		}
	}
	q, err := v.s.distribution(mask, ahead, allowed)
	if err != nil {
		return 0, false, err
	}
	return v.s.draw(q, j), true, nil
}
