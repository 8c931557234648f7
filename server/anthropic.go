package server

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"

	"windrow/answer"
)

// The wire format of an answer in Anthropic's API.
type (
	anthropicReply struct {
		ID           string         `json:"id"`
		Type         string         `json:"type"`
		Role         string         `json:"role"`
		Model        string         `json:"model"`
		Content      []any          `json:"content"` // blocks
		StopReason   *string        `json:"stop_reason"`
		StopSequence *string        `json:"stop_sequence"`
		Usage        anthropicUsage `json:"usage"`
		Windrow      *own           `json:"windrow,omitempty"`
	}
	anthropicUsage struct {
		InputTokens   int `json:"input_tokens"` // of the prompt, those that were computed
		CacheCreation int `json:"cache_creation_input_tokens"`
		CacheRead     int `json:"cache_read_input_tokens"`
		OutputTokens  int `json:"output_tokens"`
	}
	textBlock struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	thinkingBlock struct {
		Type      string `json:"type"`
		Thinking  string `json:"thinking"`
		Signature string `json:"signature"`
	}
	toolUseBlock struct {
		Type  string          `json:"type"`
		ID    string          `json:"id"`
		Name  string          `json:"name"`
		Input json.RawMessage `json:"input"`
	}
)

// anthropicMessages answers POST /v1/messages.
func (s *Server) anthropicMessages(w http.ResponseWriter, r *http.Request) error {
	q, g, err := s.converse(w, r, readAnthropic)
	if err != nil {
		return renamed(err, ".input_schema")
	}
	if q.stream {
		err = s.streamAnthropic(w, r, g)
	} else {
		err = s.wholeAnthropic(w, r, g)
	}
	s.ended(r, g, err)
	return err
}

// countTokens answers POST /v1/messages/count_tokens.
func (s *Server) countTokens(w http.ResponseWriter, r *http.Request) error {
	f, err := readFields(w, r)
	if err != nil {
		return err
	}
	q := readAnthropic(f)
	m, err := s.accept(w, r, f, q.model)
	if err != nil {
		return err
	}
	g, err := s.chatRun(r, m, &q)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]int{"input_tokens": len(g.prompt)})
	return nil
}

// anthropicHead is an answer of which nothing has come.
func anthropicHead(g *run) anthropicReply {
	u := anthropicUsage{CacheRead: g.cached()}
	u.InputTokens = len(g.prompt) - u.CacheRead
	return anthropicReply{ID: newID("msg_"), Type: "message", Role: "assistant", Model: g.model.Name, Content: []any{}, Usage: u, Windrow: g.own()}
}

// end says how a choice ended.
func (a *anthropicReply) end(c *choice) {
	reason := "end_turn"
	switch {
	case c.reason == answer.ReasonLength:
		reason = "max_tokens"
	case c.reason == answer.ReasonToolCalls:
		reason = "tool_use"
	case c.stop != "":
		reason, a.StopSequence = "stop_sequence", &c.stop
	}
	a.StopReason = &reason
	a.Usage.OutputTokens = c.tokens
}

// wholeAnthropic answers with one object.
func (s *Server) wholeAnthropic(w http.ResponseWriter, r *http.Request, g *run) error {
	var parts sections
	err := g.collect(r, func(u update) {
		for _, e := range u.events {
			parts.add(e)
		}
	})
	if err != nil {
		return err
	}
	reply := anthropicHead(g)
	reply.Windrow = g.ownInFull()
	for _, x := range parts.list {
		text := x.text.String()
		switch {
		case x.kind == answer.Reasoning:
			reply.Content = append(reply.Content, thinkingBlock{"thinking", text, signature(text)})
		case x.kind == answer.Content:
			reply.Content = append(reply.Content, textBlock{"text", text})
		case !x.cut && !x.broken: // what there is of the input of a call that was cut is no object
			reply.Content = append(reply.Content, toolUseBlock{"tool_use", toolUseID(x.id), x.name, json.RawMessage(text)})
		}
	}
	reply.end(g.choices[0])
	writeJSON(w, http.StatusOK, reply)
	return nil
}

// toolUseID is a call's id as clients of this API know them.
func toolUseID(id string) string { return "toolu_" + strings.TrimPrefix(id, "call_") }

// signature is what stands beside a text of thinking. Clients send it back, and nobody
// looks at it: here the text itself is what counts.
func signature(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}
