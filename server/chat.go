package server

import (
	"encoding/json"
	"net/http"
	"time"

	"windrow/answer"
	"windrow/decoder"
	"windrow/tokenizer"
)

// The wire format of a conversation's answer.
type (
	chatReply struct {
		head
		Choices []chatChoice `json:"choices"`
		tail
	}
	chatChoice struct {
		Index        int           `json:"index"`
		Message      chatMessage   `json:"message"`
		Logprobs     *chatLogprobs `json:"logprobs"`
		FinishReason answer.Reason `json:"finish_reason"`
	}
	chatMessage struct {
		Role             string     `json:"role"`
		Content          *string    `json:"content"`
		ReasoningContent string     `json:"reasoning_content,omitempty"`
		Refusal          *string    `json:"refusal"`
		ToolCalls        []chatCall `json:"tool_calls,omitempty"`
	}
	chatCall struct {
		ID       string       `json:"id"`
		Type     string       `json:"type"`
		Function chatFunction `json:"function"`
	}
	chatFunction struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}

	chatChunk struct {
		head
		Choices []chunkChoice `json:"choices"`
		tail
	}
	chunkChoice struct {
		Index        int            `json:"index"`
		Delta        chatDelta      `json:"delta"`
		Logprobs     *chatLogprobs  `json:"logprobs"`
		FinishReason *answer.Reason `json:"finish_reason"`
	}
	chatDelta struct {
		Role             string      `json:"role,omitempty"`
		Content          *string     `json:"content,omitempty"`
		ReasoningContent string      `json:"reasoning_content,omitempty"`
		ToolCalls        []deltaCall `json:"tool_calls,omitempty"`
	}
	deltaCall struct {
		Index    int           `json:"index"`
		ID       string        `json:"id,omitempty"`
		Type     string        `json:"type,omitempty"`
		Function deltaFunction `json:"function"`
	}
	deltaFunction struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	}
)

// chat answers POST /v1/chat/completions.
func (s *Server) chat(w http.ResponseWriter, r *http.Request) error {
	q, g, err := s.converse(w, r, readChat)
	if err != nil {
		return err
	}
	h := g.model.head("chatcmpl-", "chat.completion")
	if q.stream {
		h.Object = "chat.completion.chunk"
		err = s.streamChat(w, r, g, h)
	} else {
		err = s.wholeChat(w, r, g, h)
	}
	s.ended(r, g, err)
	return err
}

// converse reads a conversation, which read has of an API's fields, and begins its
// answer.
func (s *Server) converse(w http.ResponseWriter, r *http.Request, read func(*fields) chatRequest) (*chatRequest, *run, error) {
	f, err := readFields(w, r)
	if err != nil {
		return nil, nil, err
	}
	q := read(f)
	m, err := s.accept(w, r, f, q.model)
	if err != nil {
		return nil, nil, err
	}
	g, err := s.chatRun(r, m, &q)
	if err != nil {
		return nil, nil, err
	}
	g.chat = &q
	return &q, g, s.begin(r, g)
}

// head is the head of a new reply.
func (m *Model) head(prefix, object string) head {
	return head{ID: newID(prefix), Object: object, Created: time.Now().Unix(), Model: m.Name, SystemFingerprint: m.Fingerprint}
}

// chatRun renders a conversation.
func (s *Server) chatRun(r *http.Request, m *Model, q *chatRequest) (*run, error) {
	t := m.Tokenizer
	form := answer.FormOf(t.ChatTemplate())
	if q.tools != nil && form == answer.FormNone {
		return nil, unsupported("tools", "calling tools: the model's chat template writes no calls that can be read, which")
	}
	ids, err := s.render(r, m, q, form)
	if err != nil {
		return nil, err
	}
	g := &run{model: m, prompt: ids, params: &q.params, thinkingBudget: q.thinkingBudget}
	// A tag at the prompt's end is the template's: some ids hold it.
	const lastIDs = 16
	end := t.Decode(ids[max(0, len(ids)-lastIDs):], false)
	g.parsing = answer.Options{Thinking: answer.ThinkingOf(t.ChatTemplate(), end, q.thinking), Stop: q.stop}
	if q.tools != nil {
		g.parsing.Form, g.parsing.Tools, g.choice = form, q.tools, q.choice
		g.parsing.Either = q.form != nil
	}
	return g, nil
}

// render makes the prompt's ids of a conversation, and settles whether the model thinks
// where the request does not say. Only so many are made at once as there are processors:
// a template may take some of a second and some memory.
func (s *Server) render(r *http.Request, model *Model, q *chatRequest, form answer.Form) ([]int32, error) {
	ctx := r.Context()
	select {
	case s.rendering <- struct{}{}:
		defer func() { <-s.rendering }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if q.thinking == nil && model.NoThink {
		q.thinking = new(bool)
	}
	messages := make([]tokenizer.Message, len(q.messages))
	for i, m := range q.messages {
		m.Content, m.ToolCalls = form.ToolCalls(m.Content, m.calls)
		messages[i] = m.Message
	}
	ids, err := model.Tokenizer.EncodeChat(ctx, messages, tokenizer.ChatOptions{
		AddGenerationPrompt: true, EnableThinking: q.thinking, Tools: q.tools,
	})
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil && errorOf(err).status == http.StatusInternalServerError {
		return nil, badValue("messages", "%v", err) // what the template says of them
	}
	return ids, err
}

// wholeChat answers with one object.
func (s *Server) wholeChat(w http.ResponseWriter, r *http.Request, g *run, h head) error {
	messages := make([]answer.Message, len(g.choices))
	likely := make([][]decoder.Logprobs, len(g.choices))
	err := g.collect(r, func(u update) {
		likely[u.choice.index] = append(likely[u.choice.index], u.logprobs...)
		for _, e := range u.events {
			messages[u.choice.index].Add(e)
		}
	})
	if err != nil {
		return err
	}
	reply := chatReply{head: h, tail: g.tail()}
	for i, m := range messages {
		out := chatMessage{Role: "assistant", ReasoningContent: m.Reasoning}
		for _, c := range m.Calls {
			out.ToolCalls = append(out.ToolCalls, chatCall{c.ID, "function", chatFunction{c.Name, c.Arguments}})
		}
		if m.Content != "" || len(m.Calls) == 0 {
			out.Content = &m.Content
		}
		reply.Choices = append(reply.Choices, chatChoice{Index: i, Message: out, Logprobs: g.chatLogprobs(likely[i]), FinishReason: g.choices[i].reason})
	}
	writeJSON(w, http.StatusOK, reply)
	return nil
}

// streamChat answers with events.
func (s *Server) streamChat(w http.ResponseWriter, r *http.Request, g *run, h head) error {
	base := chatChunk{head: h, Choices: []chunkChoice{}}
	if g.params.includeUsage {
		base.Usage = json.RawMessage("null")
	}
	likely := make([][]decoder.Logprobs, len(g.choices)) // for the next chunk
	send := func(out *events, c *choice, d chatDelta, reason *answer.Reason) {
		chunk := base
		one := chunkChoice{Index: c.index, Delta: d, FinishReason: reason}
		if p := &likely[c.index]; len(*p) > 0 {
			n := min(len(*p), mostLikely)
			one.Logprobs, *p = g.chatLogprobs((*p)[:n]), (*p)[n:]
		}
		chunk.Choices = []chunkChoice{one}
		out.send(chunk)
	}
	return s.stream(w, r, g,
		func(out *events) {
			empty := ""
			chunk := base
			chunk.Windrow = g.own()
			for _, c := range g.choices {
				chunk.Choices = []chunkChoice{{Index: c.index, Delta: chatDelta{Role: "assistant", Content: &empty}}}
				out.send(chunk)
			}
		},
		func(out *events, u update) {
			likely[u.choice.index] = append(likely[u.choice.index], u.logprobs...)
			for _, e := range u.events {
				for _, d := range deltas(e) {
					send(out, u.choice, d, nil)
				}
			}
			u.choice.film.show(out, h, u.choice.index, u.steps, u.done)
			if u.done {
				for len(likely[u.choice.index]) > mostLikely {
					send(out, u.choice, chatDelta{}, nil)
				}
				send(out, u.choice, chatDelta{}, &u.choice.reason)
			}
		},
		func(out *events) {
			chunk, some := base, false
			if chunk.tail, some = g.last(); some {
				out.send(chunk)
			}
		})
}

// deltas are what a chunk, or several, says of an event.
func deltas(e answer.Event) (list []chatDelta) {
	switch e.Kind {
	case answer.CallBegin:
		call := deltaCall{Index: e.Index, ID: e.ID, Type: "function", Function: deltaFunction{Name: e.Name}}
		return []chatDelta{{ToolCalls: []deltaCall{call}}}
	case answer.Content, answer.Reasoning, answer.Arguments:
	default:
		return nil
	}
	for _, piece := range pieces(e.Text) {
		switch e.Kind {
		case answer.Content:
			list = append(list, chatDelta{Content: &piece})
		case answer.Reasoning:
			list = append(list, chatDelta{ReasoningContent: piece})
		default:
			list = append(list, chatDelta{ToolCalls: []deltaCall{{Index: e.Index, Function: deltaFunction{Arguments: piece}}}})
		}
	}
	return list
}
