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

// PromptLogprobs says the same of a token of the prompt, of which At come before it:
// of the distribution of the row before it, as AR has it. They come in order, from the
// second token on, before [Prefilled].
type PromptLogprobs struct {
	At int
	Logprobs
}

func (Logprobs) event() {}

// promptLogits bounds the logits of a forward whose rows tell of the prompt: 32 MB.
const promptLogits = 32 << 20 / 4

// promptRows is the most rows that a chunk of the prompt may have.
func (s *Sequence) promptRows() int {
	n := s.o.prefillRows()
	if s.o.PromptLogprobs == nil {
		return n
	}
	if v := int(s.o.Vocabulary.Size); v > 0 {
		n = min(n, max(1, promptLogits/v))
	}
	if s.o.InvariantRows > 0 { // such a row tells what it tells when the token is generated
		n = min(n, s.o.InvariantRows)
	}
	return n
}

// wantPrompt asks for the logits of a prompt's row, that of its token at, where they are
// to be told of and were not yet; it reports whether they are.
func (s *Sequence) wantPrompt(at int) bool {
	return s.o.PromptLogprobs != nil && at+1 > s.told && at+1 < len(s.prompt)
}

// tellPrompt appends what is known of the prompt by the rows from a position on.
func (s *Sequence) tellPrompt(events []Event, from int, results []model.Result) []Event {
	for at := from; len(results) > 0 && at+1 < len(s.prompt); at++ {
		if !s.wantPrompt(at) {
			if s.head() != nil {
				results = results[1:]
			}
			continue
		}
		if p := s.sampler.likely(results[0], s.prompt[at+1], s.o.PromptLogprobs); p != nil {
			events = append(events, PromptLogprobs{at + 1, *p})
		}
		s.told, results = at+1, results[1:]
	}
	return events
}

// wantLogprobs asks for what logprobs needs of the row that was added last: candidates,
// of which the best is what greedy decoding takes; its logits where another may be.
func (r *rows) wantLogprobs(s *sampler) {
	if s.tell == nil {
		return
	}
	w := &r.batch.Want[len(r.batch.Want)-1]
	if may := r.lastAllowed(); may.one || may.ids != nil {
		w.Logits = true
	}
	if !w.Logits {
		w.TopK = max(1, *s.tell)
	}
}

// logprobs says how likely a token was that was taken from a row; nil where nobody asks.
func (s *sampler) logprobs(r model.Result, token int32) *Logprobs {
	return s.likely(r, token, s.tell)
}

// likely is logprobs with that many of the most likely tokens; nil: nobody asks.
func (s *sampler) likely(r model.Result, token int32, tell *int) *Logprobs {
	if tell == nil {
		return nil
	}
	top, chosen := r.Top, float32(math.Inf(-1))
	if len(r.Logits) > 0 {
		top = model.TopOf(r.Logits, *tell, model.Bars{Limit: int32(s.vocab.Size), Except: s.vocab.MaskID}, nil)
		if int(token) < len(r.Logits) {
			chosen = r.Logits[token]
		}
	} else if len(top) > 0 && top[0].ID == token {
		chosen = top[0].Logit
	}
	p := &Logprobs{Token: Logprob{token, chosen - r.LogSumExp}, Top: make([]Logprob, 0, *tell)}
	for _, c := range top[:min(len(top), *tell)] {
		p.Top = append(p.Top, Logprob{c.ID, c.Logit - r.LogSumExp})
	}
	return p
}
