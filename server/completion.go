package server

import (
	"encoding/json"
	"net/http"
	"strings"

	"windrow/answer"
	"windrow/decoder"
)

// The wire format of a completion: chunks have the same form.
type (
	completionReply struct {
		head
		Choices []completionChoice `json:"choices"`
		tail
	}
	completionChoice struct {
		Index        int                 `json:"index"`
		Text         string              `json:"text"`
		Logprobs     *completionLogprobs `json:"logprobs"`
		FinishReason *answer.Reason      `json:"finish_reason"`
	}
)

// complete answers POST /v1/completions.
func (s *Server) complete(w http.ResponseWriter, r *http.Request) error {
	f, err := readFields(w, r)
	if err != nil {
		return err
	}
	q := readCompletion(f)
	m, err := s.accept(w, r, f, q.model)
	if err != nil {
		return err
	}
	g, err := m.completionRun(&q)
	if err != nil {
		return err
	}
	if err := s.begin(r, g); err != nil {
		return err
	}
	h := m.head("cmpl-", "text_completion")
	echo := q.echoed(g)
	if q.stream {
		err = s.streamCompletion(w, r, g, h, echo)
	} else {
		err = s.wholeCompletion(w, r, g, h, echo)
	}
	s.ended(r, g, err)
	return err
}

// completionRun encodes the prompts. All an answer's text is text.
func (m *Model) completionRun(q *completionRequest) (*run, error) {
	g := &run{model: m, params: &q.params, parsing: answer.Options{Stop: q.stop}}
	for i, p := range q.prompts {
		ids, err := m.promptIDs(q, p)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			g.prompt = ids
		} else {
			g.more = append(g.more, ids)
		}
	}
	return g, nil
}

func (m *Model) promptIDs(q *completionRequest, p prompt) ([]int32, error) {
	switch {
	case len(p.ids) > 0:
		for i, id := range p.ids {
			if int(id) >= m.Vocabulary {
				return nil, badValue(index(p.name, i), "id %d: the model has ids 0 to %d", id, m.Vocabulary-1)
			}
		}
		return p.ids, nil
	case q.plain:
		return m.Tokenizer.EncodePlain(p.text)
	}
	return m.Tokenizer.Encode(p.text)
}

// echoed is what each choice's text begins with: the text of its prompt, where echo asks
// for it.
func (q *completionRequest) echoed(g *run) []string {
	list := make([]string, len(g.choices))
	for i := range list {
		p := q.prompts[i/q.choices]
		switch {
		case !q.echo:
		case len(p.ids) > 0, q.promptLogprobs != nil: // its tokens' offsets are in this text
			list[i] = g.model.Tokenizer.Decode(g.promptOf(i), false)
		default:
			list[i] = p.text
		}
	}
	return list
}

// wholeCompletion answers with one object.
func (s *Server) wholeCompletion(w http.ResponseWriter, r *http.Request, g *run, h head, echo []string) error {
	texts := make([]strings.Builder, len(g.choices))
	likely := make([][]decoder.Logprobs, len(g.choices))
	at := make([]offsets, len(g.choices))
	for i := range texts {
		texts[i].WriteString(echo[i])
		likely[i], at[i] = g.promptTold(i)
	}
	err := g.collect(r, func(u update) {
		i := u.choice.index
		likely[i] = append(append(likely[i], u.prompt...), u.logprobs...)
		for _, e := range u.events {
			texts[i].WriteString(e.Text)
		}
	})
	if err != nil {
		return err
	}
	reply := completionReply{head: h, tail: g.tail()}
	for i, c := range g.choices {
		reply.Choices = append(reply.Choices, completionChoice{
			Index: i, Text: texts[i].String(), Logprobs: g.completionLogprobs(likely[i], &at[i]), FinishReason: &c.reason,
		})
	}
	writeJSON(w, http.StatusOK, reply)
	return nil
}

// streamCompletion answers with events.
func (s *Server) streamCompletion(w http.ResponseWriter, r *http.Request, g *run, h head, echo []string) error {
	base := completionReply{head: h, Choices: []completionChoice{}}
	if g.params.includeUsage {
		base.Usage = json.RawMessage("null")
	}
	first := g.own() // goes with the first chunk
	send := func(out *events, c completionChoice) {
		chunk := base
		chunk.Choices, chunk.Windrow, first = []completionChoice{c}, first, nil
		out.send(chunk)
	}
	likely := make([][]decoder.Logprobs, len(g.choices)) // for the next chunks
	at := make([]offsets, len(g.choices))
	for i := range likely {
		likely[i], at[i] = g.promptTold(i)
	}
	return s.stream(w, r, g,
		func(out *events) {
			for i, text := range echo {
				if text == "" {
					continue
				}
				for _, piece := range pieces(text) {
					send(out, completionChoice{Index: i, Text: piece})
				}
			}
		},
		func(out *events, u update) {
			i := u.choice.index
			likely[i] = append(append(likely[i], u.prompt...), u.logprobs...)
			take := func() *completionLogprobs {
				n := min(len(likely[i]), mostLikely)
				if n == 0 {
					return nil
				}
				p := g.completionLogprobs(likely[i][:n], &at[i])
				likely[i] = likely[i][n:]
				return p
			}
			for len(u.prompt) > 0 && len(likely[i]) > mostLikely {
				send(out, completionChoice{Index: i, Logprobs: take()})
			}
			for _, e := range u.events {
				for _, piece := range pieces(e.Text) {
					send(out, completionChoice{Index: i, Text: piece, Logprobs: take()})
				}
			}
			if u.done {
				for len(likely[i]) > mostLikely {
					send(out, completionChoice{Index: i, Logprobs: take()})
				}
				send(out, completionChoice{Index: i, Logprobs: take(), FinishReason: &u.choice.reason})
			}
		},
		func(out *events) {
			chunk, some := base, false
			if chunk.tail, some = g.last(); some {
				out.send(chunk)
			}
		})
}
