package server

import (
	"encoding/json"
	"net/http"
	"strings"

	"windrow/answer"
)

// The wire format of a completion: chunks have the same form.
type (
	completionReply struct {
		head
		Choices []completionChoice `json:"choices"`
		tail
	}
	completionChoice struct {
		Index        int             `json:"index"`
		Text         string          `json:"text"`
		Logprobs     json.RawMessage `json:"logprobs"`
		FinishReason *answer.Reason  `json:"finish_reason"`
	}
)

// complete answers POST /v1/completions.
func (s *Server) complete(w http.ResponseWriter, r *http.Request) error {
	f, err := readFields(w, r)
	if err != nil {
		return err
	}
	q := readCompletion(f)
	if err := s.accept(w, f, &q.params); err != nil {
		return err
	}
	g, err := s.completionRun(&q)
	if err != nil {
		return err
	}
	if err := s.begin(r, g); err != nil {
		return err
	}
	h := s.head("cmpl-", "text_completion")
	if q.stream {
		err = s.streamCompletion(w, r, g, h)
	} else {
		err = s.wholeCompletion(w, r, g, h)
	}
	s.ended(r, g, err)
	return err
}

// completionRun encodes a prompt. All its answer's text is text.
func (s *Server) completionRun(q *completionRequest) (*run, error) {
	g := &run{model: s.model, prompt: q.ids, params: &q.params, parsing: answer.Options{Stop: q.stop}}
	var err error
	switch {
	case len(q.ids) > 0:
		for i, id := range q.ids {
			if int(id) >= s.model.Vocabulary {
				return nil, badValue(index("prompt", i), "id %d: the model has ids 0 to %d", id, s.model.Vocabulary-1)
			}
		}
	case q.plain:
		g.prompt, err = s.model.Tokenizer.EncodePlain(q.prompt)
	default:
		g.prompt, err = s.model.Tokenizer.Encode(q.prompt)
	}
	return g, err
}

// wholeCompletion answers with one object.
func (s *Server) wholeCompletion(w http.ResponseWriter, r *http.Request, g *run, h head) error {
	texts := make([]strings.Builder, len(g.choices))
	err := g.collect(r, func(u update) {
		for _, e := range u.events {
			texts[u.choice.index].WriteString(e.Text)
		}
	})
	if err != nil {
		return err
	}
	reply := completionReply{head: h, tail: g.tail()}
	for i, c := range g.choices {
		reply.Choices = append(reply.Choices, completionChoice{Index: i, Text: texts[i].String(), FinishReason: &c.reason})
	}
	writeJSON(w, http.StatusOK, reply)
	return nil
}

// streamCompletion answers with events.
func (s *Server) streamCompletion(w http.ResponseWriter, r *http.Request, g *run, h head) error {
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
	return s.stream(w, r, g, func(*events) {},
		func(out *events, u update) {
			for _, e := range u.events {
				for _, piece := range pieces(e.Text) {
					send(out, completionChoice{Index: u.choice.index, Text: piece})
				}
			}
			if u.done {
				send(out, completionChoice{Index: u.choice.index, FinishReason: &u.choice.reason})
			}
		},
		func(out *events) {
			chunk, some := base, false
			if chunk.tail, some = g.last(); some {
				out.send(chunk)
			}
		})
}
