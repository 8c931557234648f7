package decoder

import "windrow/model"

// autoregressive decodes one token per forward: the reference.
//
//	start: prefill gives the first token
//	step:  row = the newest token; its row's logits give the next one
//
// A token is emitted one forward before its keys and values are permanent.
type autoregressive struct {
	s       *sampler
	next    int32     // emitted, not yet fed
	allowed []choices // of one row: what may follow next; none where all may
}

func (a *autoregressive) needsPrompt() bool { return true }

func (a *autoregressive) start(last model.Result, allowed choices, emit emitter) error {
	p, err := a.s.distribution(last, nil, allowed)
	if err != nil {
		return err
	}
	a.next = a.s.draw(p, 0)
	emit(a.next, a.s.logprobs(last, a.next))
	return nil
}

func (a *autoregressive) plan(r *rows) {
	r.add(0, Slot{Token: a.next, Filled: true}, true)
	r.allow(a.s, a.s.at, false)
	r.wantLogprobs(a.s)
	a.allowed = r.allowed
}

func (a *autoregressive) absorb(results []model.Result, emit emitter) (outcome, error) {
	if err := a.start(results[0], allowedOf(a.allowed, 0), emit); err != nil {
		return outcome{}, err
	}
	return outcome{commit: 1, filled: []Fill{{0, a.next}}}, nil
}
