package server

import (
	"net/http"

	"windrow/answer"
)

// anthropicStream tells an answer by the events of Anthropic's API:
//
//	message_start
//	(content_block_start content_block_delta… content_block_stop)…
//	message_delta message_stop
//
// with a ping where nothing comes. Blocks are counted from 0, one after the other.
type anthropicStream struct{ out *events }

// The wire format of the events.
type (
	anthropicStart struct {
		Type    string         `json:"type"`
		Message anthropicReply `json:"message"`
	}
	anthropicBlockStart struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
		Block any    `json:"content_block"`
	}
	anthropicBlockDelta struct {
		Type  string            `json:"type"`
		Index int               `json:"index"`
		Delta map[string]string `json:"delta"`
	}
	anthropicBlockStop struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
	}
	anthropicDelta struct {
		Type  string         `json:"type"`
		Delta anthropicEnd   `json:"delta"`
		Usage anthropicUsage `json:"usage"`
	}
	anthropicEnd struct {
		StopReason   *string `json:"stop_reason"`
		StopSequence *string `json:"stop_sequence"`
	}
	anthropicOnly struct {
		Type string `json:"type"`
	}
)

// streamAnthropic answers with events.
func (s *Server) streamAnthropic(w http.ResponseWriter, r *http.Request, g *run) error {
	out := s.newEvents(w)
	a := anthropicStream{out}
	parts := sections{begin: a.begin, delta: a.delta, end: a.end}
	var reply anthropicReply
	out.ping = func() { out.named("ping", anthropicOnly{"ping"}) }
	out.fail = func(e *apiError) { out.named("error", anthropic.body(e, recordOf(r).id)) }
	out.end = func() { out.named("message_stop", anthropicOnly{"message_stop"}) }
	return s.streamTo(out, r, g,
		func(*events) {
			reply = anthropicHead(g)
			out.named("message_start", anthropicStart{"message_start", reply})
		},
		func(_ *events, u update) {
			for _, e := range u.events {
				parts.add(e)
			}
			if u.done {
				parts.finish(u.choice.reason == answer.ReasonLength)
				reply.end(u.choice)
			}
		},
		func(*events) {
			out.named("message_delta", anthropicDelta{"message_delta", anthropicEnd{reply.StopReason, reply.StopSequence}, reply.Usage})
		})
}

func (a anthropicStream) begin(i int, x *section) {
	var block any
	switch x.kind {
	case answer.Reasoning:
		block = thinkingBlock{Type: "thinking"}
	case answer.Content:
		block = textBlock{Type: "text"}
	default:
		block = toolUseBlock{"tool_use", toolUseID(x.id), x.name, []byte("{}")}
	}
	a.out.named("content_block_start", anthropicBlockStart{"content_block_start", i, block})
}

func (a anthropicStream) delta(i int, x *section, text string) {
	switch x.kind {
	case answer.Reasoning:
		a.piece(i, "thinking_delta", "thinking", text)
	case answer.Content:
		a.piece(i, "text_delta", "text", text)
	default:
		a.piece(i, "input_json_delta", "partial_json", text)
	}
}

func (a anthropicStream) piece(i int, kind, key, text string) {
	a.out.named("content_block_delta", anthropicBlockDelta{"content_block_delta", i, map[string]string{"type": kind, key: text}})
}

func (a anthropicStream) end(i int, x *section) {
	if x.kind == answer.Reasoning {
		a.piece(i, "signature_delta", "signature", signature(x.text.String()))
	}
	a.out.named("content_block_stop", anthropicBlockStop{"content_block_stop", i})
}
