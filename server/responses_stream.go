package server

import (
	"net/http"

	"windrow/answer"
)

// responseStream tells a response by its events, numbered without gaps:
//
//	response.created response.in_progress
//	for each item: response.output_item.added
//	  of reasoning and messages: response.content_part.added, deltas, their end, response.content_part.done
//	  of calls: response.function_call_arguments.delta…, .done
//	  response.output_item.done
//	response.completed, or response.incomplete; response.failed where it failed
//
// Logprobs are those of the deltas: the events that tell a whole text again, which may be
// long, have none.
type responseStream struct {
	out    *events
	number int // of the next event
}

// eventHead is what all events have.
type eventHead struct {
	Type           string `json:"type"`
	SequenceNumber int    `json:"sequence_number"`
}

// The wire format of the events.
type (
	responseEvent struct {
		eventHead
		Response response `json:"response"`
	}
	itemEvent struct {
		eventHead
		OutputIndex int `json:"output_index"`
		Item        any `json:"item"`
	}
	partEvent struct {
		eventHead
		ItemID       string `json:"item_id"`
		OutputIndex  int    `json:"output_index"`
		ContentIndex int    `json:"content_index"`
		Part         any    `json:"part"`
	}
	textEvent struct {
		eventHead
		ItemID       string          `json:"item_id"`
		OutputIndex  int             `json:"output_index"`
		ContentIndex int             `json:"content_index"`
		Delta        *string         `json:"delta,omitempty"`
		Text         *string         `json:"text,omitempty"`
		Logprobs     *[]tokenLogprob `json:"logprobs,omitempty"` // of output_text: always there
	}
	argumentsEvent struct {
		eventHead
		ItemID      string  `json:"item_id"`
		OutputIndex int     `json:"output_index"`
		Delta       *string `json:"delta,omitempty"`
		Name        string  `json:"name,omitempty"`
		Arguments   *string `json:"arguments,omitempty"`
	}
)

// head is the head of the next event.
func (s *responseStream) head(kind string) eventHead {
	s.number++
	return eventHead{kind, s.number - 1}
}

func (s *responseStream) response(kind string, p response) {
	s.out.named(kind, responseEvent{s.head(kind), p})
}

// streamResponse answers with events.
func (s *Server) streamResponse(w http.ResponseWriter, r *http.Request, g *run, p response) error {
	out := s.newEvents(w)
	e := &responseStream{out: out}
	parts := sections{begin: e.begin, delta: e.delta, end: e.end, likely: g.likely()}
	out.fail = func(err *apiError) {
		p.Status, p.Error = statusFailed, &responseError{"server_error", err.Message}
		e.response("response.failed", p)
	}
	out.end = func() { e.response("response."+p.Status, p) }
	return s.streamTo(out, r, g,
		func(*events) {
			e.response("response.created", p)
			e.response("response.in_progress", p)
		},
		func(_ *events, u update) {
			parts.likely.tell(u.logprobs)
			for _, event := range u.events {
				parts.add(event)
			}
			if u.done {
				parts.finish(u.choice.reason == answer.ReasonLength)
			}
		},
		func(*events) { p.finish(g, &parts) })
}

func (s *responseStream) begin(i int, x *section) {
	x.item = x.itemID()
	s.out.named("response.output_item.added", itemEvent{s.head("response.output_item.added"), i, x.begun()})
	if x.kind != answer.CallBegin {
		s.out.named("response.content_part.added", partEvent{s.head("response.content_part.added"), x.item, i, 0, x.part("")})
	}
}

func (s *responseStream) delta(i int, x *section, text string) {
	switch x.kind {
	case answer.CallBegin:
		kind := "response.function_call_arguments.delta"
		s.out.named(kind, argumentsEvent{eventHead: s.head(kind), ItemID: x.item, OutputIndex: i, Delta: &text})
	case answer.Reasoning:
		kind := "response.reasoning_text.delta"
		s.out.named(kind, textEvent{eventHead: s.head(kind), ItemID: x.item, OutputIndex: i, Delta: &text})
	default:
		kind := "response.output_text.delta"
		s.out.named(kind, textEvent{eventHead: s.head(kind), ItemID: x.item, OutputIndex: i, Delta: &text, Logprobs: x.told()})
	}
}

// end ends an item. One that turned out to be no call is dropped without an end, which
// clients would take for a call.
func (s *responseStream) end(i int, x *section) {
	x.likely = nil
	if x.broken {
		return
	}
	text := x.text.String()
	switch x.kind {
	case answer.CallBegin:
		kind := "response.function_call_arguments.done"
		s.out.named(kind, argumentsEvent{eventHead: s.head(kind), ItemID: x.item, OutputIndex: i, Name: x.name, Arguments: &text})
	case answer.Reasoning:
		kind := "response.reasoning_text.done"
		s.out.named(kind, textEvent{eventHead: s.head(kind), ItemID: x.item, OutputIndex: i, Text: &text})
	default:
		kind := "response.output_text.done"
		s.out.named(kind, textEvent{eventHead: s.head(kind), ItemID: x.item, OutputIndex: i, Text: &text, Logprobs: &[]tokenLogprob{}})
	}
	if x.kind != answer.CallBegin {
		s.out.named("response.content_part.done", partEvent{s.head("response.content_part.done"), x.item, i, 0, x.part(text)})
	}
	s.out.named("response.output_item.done", itemEvent{s.head("response.output_item.done"), i, x.whole()})
}
