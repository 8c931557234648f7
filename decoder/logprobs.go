package decoder

import (
	"math"

	"windrow/model"
)

// MaxLogprobs bounds Options.Logprobs.
const MaxLogprobs = 20

// Logprobs says how likely a token was, and which were likelier: of the model's own
// distribution, at temperature 1 over the whole vocabulary, before penalties, bias,
// filters and constraint. It follows its [Token], where Options.Logprobs asks for it.
//
// The distribution is that of the row which the token was taken from: in AR and Verified
// the row of the token before it, with the same bits in both; in WeDLM the mask that was
// filled, which saw those slots that were filled before it, on either side.
type Logprobs struct {
	Token Logprob
	// Top are the most likely tokens, best first, lower ids first on a tie; among them
	// none that can never be chosen (the mask's id).
	Top []Logprob
}

// Logprob is the natural logarithm of a token's probability.
type Logprob struct {
	ID      int32
	Logprob float32
}

func (Logprobs) event() {}

// wantLogprobs asks for what logprobs needs of the row that was added last: candidates,
// of which the best is what greedy decoding takes; its logits where another may be.
func (r *rows) wantLogprobs(s *sampler) {
	if s.tell == nil {
		return
	}
	w := &r.batch.Want[len(r.batch.Want)-1]
	if s.at != nil {
		w.Logits = true
	}
	if !w.Logits {
		w.TopK = max(1, *s.tell)
	}
}

// logprobs says how likely a token was that was taken from a row; nil where nobody asks.
func (s *sampler) logprobs(r model.Result, token int32) *Logprobs {
	if s.tell == nil {
		return nil
	}
	top, chosen := r.Top, float32(math.Inf(-1))
	if len(r.Logits) > 0 {
		top = model.TopOf(r.Logits, *s.tell, model.Bars{Limit: int32(s.vocab.Size), Except: s.vocab.MaskID}, nil)
		if int(token) < len(r.Logits) {
			chosen = r.Logits[token]
		}
	} else if len(top) > 0 && top[0].ID == token {
		chosen = top[0].Logit
	}
	p := &Logprobs{Token: Logprob{token, chosen - r.LogSumExp}, Top: make([]Logprob, 0, *s.tell)}
	for _, c := range top[:min(len(top), *s.tell)] {
		p.Top = append(p.Top, Logprob{c.ID, c.Logit - r.LogSumExp})
	}
	return p
}
