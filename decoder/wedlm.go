package decoder

import "windrow/model"

// wedlm is window decoding as arXiv 2512.22737 has it.
//
//	step:
//	  A  p = length of the leading run; append min(p, budget) masks
//	  B  rows = filled slots ascending, then mask slots ascending
//	  C  forward
//	  D  commit slots 0..p-1: emit each; a stop id or max tokens ends it
//	     remove the p slots
//	  E  for each mask slot i: a_i = H_i + λ·(i - first mask slot)
//	     fill every slot with a_i < τ; if none, or τ is absent: the one with the least a_i
//
// The leading run is filled, so its rows are the first p of the forward: their
// keys and values have seen true tokens only and lie in their final place.
//
// A control may feed fewer masks, cut from the right: those left out are slots
// still, they say nothing in this step.
type wedlm struct {
	s       *sampler
	rule    fillRule
	control *fillControl // nil: every mask is fed
	slots   []Slot
	// logprobs has one entry a slot: how likely the token in it was, where somebody asks.
	logprobs []*Logprobs
	masks    int // of the next forward
	left     int // tokens that may still be emitted: never fewer than slots
}

func newWeDLM(o Options, s *sampler) *wedlm {
	w := &wedlm{s: s, rule: newFillRule(o), left: o.MaxTokens}
	if o.Cost != nil {
		o.Window = min(o.Window, maxAdaptive)
		w.control = newFillControl(o.Cost, o.Window)
	}
	w.slots = make([]Slot, min(o.Window, o.MaxTokens))
	w.logprobs = make([]*Logprobs, len(w.slots))
	w.choose()
	return w
}

// choose decides how many masks the next forward feeds.
func (w *wedlm) choose() {
	filled := 0
	slots, _ := w.extended()
	for _, s := range slots {
		if s.Filled {
			filled++
		}
	}
	w.masks = len(slots) - filled
	if w.control != nil {
		w.masks = w.control.choose(filled, w.masks)
	}
}

// needsPrompt is false: a mask row predicts its own slot, so the first token
// comes from the first window and not from the prompt's last row.
func (w *wedlm) needsPrompt() bool { return false }

func (w *wedlm) start(model.Result, choices, emitter) error { return nil }

// extended is the window after step A, and its leading run's length.
func (w *wedlm) extended() (slots []Slot, p int) {
	for p < len(w.slots) && w.slots[p].Filled {
		p++
	}
	budget := w.left - len(w.slots)
	slots = make([]Slot, len(w.slots)+min(p, budget))
	copy(slots, w.slots)
	return slots, p
}

func (w *wedlm) plan(r *rows) {
	slots, _ := w.extended()
	for i, s := range slots {
		if s.Filled {
			r.add(i, s, false)
		}
	}
	masks := 0
	for i, s := range slots {
		if !s.Filled && masks < w.masks {
			r.add(i, s, true)
			r.wantLogprobs(w.s)
			masks++
		}
	}
}

// absorb is steps D and E; results are those of the masks, ascending.
func (w *wedlm) absorb(results []model.Result, emit emitter) (outcome, error) {
	slots, p := w.extended()
	for i, s := range slots[:p] {
		if !emit(s.Token, w.logprobs[i]) {
			return outcome{commit: i + 1}, nil
		}
	}
	w.slots, w.left = slots[p:], w.left-p
	likely := make([]*Logprobs, len(w.slots))
	copy(likely, w.logprobs[p:])
	w.logprobs = likely

	var masks []int     // slot of each result
	var visible []int32 // tokens of the filled slots: every mask row saw them
	for i, s := range w.slots {
		if s.Filled {
			visible = append(visible, s.Token)
		} else if len(masks) < w.masks {
			masks = append(masks, i)
		}
	}
	out := outcome{commit: p, entropy: entropies(results)}
	for _, m := range w.rule.choose(masks, out.entropy) {
		x, err := w.s.distribution(results[m], visible, choices{})
		if err != nil {
			return out, err
		}
		token := w.s.draw(x, masks[m])
		out.filled = append(out.filled, Fill{masks[m], token})
		w.logprobs[masks[m]] = w.s.logprobs(results[m], token)
	}
	for _, f := range out.filled {
		w.slots[f.Slot] = Slot{Token: f.Token, Filled: true}
	}
	if w.control != nil {
		passed := make([]bool, len(masks))
		for m, slot := range masks {
			passed[m] = w.rule.below(out.entropy[m], slot-masks[0])
		}
		w.control.observe(p+len(visible)+len(masks), passed, len(out.filled))
	}
	w.choose()
	return out, nil
}

// fillRule is step E's choice: τ and λ in nats.
type fillRule struct {
	lambda, tau float64
	single      bool // τ absent: one token per step
}

func newFillRule(o Options) fillRule {
	r := fillRule{lambda: float64(o.PosPenalty), single: o.EntropyThreshold == nil}
	if !r.single {
		r.tau = float64(*o.EntropyThreshold)
	}
	return r
}

// below reports whether a mask at that distance from the first passes τ.
func (r fillRule) below(entropy float32, distance int) bool {
	return !r.single && float64(entropy)+r.lambda*float64(distance) < r.tau
}

// choose returns the indices into masks (slot numbers, ascending) of those to
// fill: all below τ, or the single least, the leftmost on a tie.
func (r fillRule) choose(masks []int, entropy []float32) []int {
	var chosen []int
	least, at := 0.0, -1
	for m, slot := range masks {
		distance := slot - masks[0]
		if r.below(entropy[m], distance) {
			chosen = append(chosen, m)
		}
		if a := float64(entropy[m]) + r.lambda*float64(distance); at < 0 || a < least {
			least, at = a, m
		}
	}
	if len(chosen) == 0 && at >= 0 {
		chosen = append(chosen, at)
	}
	return chosen
}

func entropies(results []model.Result) []float32 {
	h := make([]float32, len(results))
	for i, r := range results {
		h[i] = r.Entropy
	}
	return h
}
