package server

import (
	"context"
	"net/http"
	"slices"
	"time"

	"windrow/answer"
	"windrow/decoder"
	"windrow/schedule"
	"windrow/tokenizer"
)

// sealTime bounds the rendering of what a conversation's next prompt will begin with.
const sealTime = 10 * time.Second

// seal has what the next turn of a conversation will begin with computed while nobody
// waits: templates write an earlier answer differently than it was generated (without
// its reasoning, say), and text may encode to other tokens. It is a guess that costs idle
// time, and changes no text.
func (s *Server) seal(r *http.Request, g *run) {
	if !s.o.Seal || g.chat == nil || g.model.Seal == nil || len(g.choices) != 1 {
		return
	}
	c := g.choices[0]
	if c.reason != answer.ReasonStop && c.reason != answer.ReasonToolCalls {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), sealTime)
		defer cancel()
		if ids := s.next(r.WithContext(ctx), g); len(ids) > 0 {
			g.model.Seal(schedule.Request{Prompt: ids, Owner: g.owner, Salt: g.salt(), Session: g.params.session})
		}
	}()
}

// next are the ids that the next prompt begins with, whatever it asks: what two prompts
// with different questions have in common. nil where the template has none.
func (s *Server) next(r *http.Request, g *run) []int32 {
	said, err := answer.Parse(g.choices[0].summary.Text, answer.Ended, g.parsing)
	if err != nil {
		return nil
	}
	// Few clients send reasoning back.
	turn := message{Message: tokenizer.Message{Role: "assistant", Content: said.Content}, calls: said.Calls}
	form := answer.FormOf(g.model.Tokenizer.ChatTemplate())
	var both [2][]int32
	for i, text := range []string{"a", "1"} {
		q := *g.chat
		q.messages = append(slices.Clip(slices.Clone(q.messages)), turn)
		if len(said.Calls) == 0 {
			q.messages = append(q.messages, message{Message: tokenizer.Message{Role: "user", Content: text}})
		}
		for _, call := range said.Calls {
			q.messages = append(q.messages, message{Message: tokenizer.Message{Role: "tool", Content: text, ToolCallID: call.ID}})
		}
		if both[i], err = s.render(r, g.model, &q, form); err != nil {
			return nil
		}
	}
	return both[0][:decoder.CommonPrefix(both[0], both[1])]
}
