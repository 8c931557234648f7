package server

import (
	"net/http"
	"time"

	"windrow/answer"
)

// The wire format of a response.
type (
	response struct {
		ID                 string             `json:"id"`
		Object             string             `json:"object"`
		CreatedAt          int64              `json:"created_at"`
		Status             string             `json:"status"`
		Background         bool               `json:"background"`
		Error              *responseError     `json:"error"`
		IncompleteDetails  *incompleteDetails `json:"incomplete_details"`
		Model              string             `json:"model"`
		Output             []any              `json:"output"` // items
		PreviousResponseID *string            `json:"previous_response_id"`
		ServiceTier        string             `json:"service_tier"`
		Store              bool               `json:"store"`
		Temperature        float32            `json:"temperature"`
		TopP               float32            `json:"top_p"`
		Truncation         string             `json:"truncation"`
		Usage              *responseUsage     `json:"usage"`
		SystemFingerprint  string             `json:"system_fingerprint"`
		Windrow            *own               `json:"windrow,omitempty"`
		asked
	}
	responseError struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	incompleteDetails struct {
		Reason string `json:"reason"`
	}
	responseUsage struct {
		InputTokens        int `json:"input_tokens"`
		InputTokensDetails struct {
			CachedTokens int `json:"cached_tokens"`
		} `json:"input_tokens_details"`
		OutputTokens        int `json:"output_tokens"`
		OutputTokensDetails struct {
			ReasoningTokens int `json:"reasoning_tokens"`
		} `json:"output_tokens_details"`
		TotalTokens int `json:"total_tokens"`
	}
)

// The wire format of a response's items and their parts.
type (
	messageItem struct {
		ID      string `json:"id"`
		Type    string `json:"type"`
		Status  string `json:"status"`
		Role    string `json:"role"`
		Content []any  `json:"content"`
	}
	reasoningItem struct {
		ID               string  `json:"id"`
		Type             string  `json:"type"`
		Status           string  `json:"status"`
		Summary          []any   `json:"summary"`
		Content          []any   `json:"content"`
		EncryptedContent *string `json:"encrypted_content"`
	}
	callItem struct {
		ID        string `json:"id"`
		Type      string `json:"type"`
		Status    string `json:"status"`
		CallID    string `json:"call_id"`
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	outputText struct {
		Type        string         `json:"type"`
		Text        string         `json:"text"`
		Annotations []any          `json:"annotations"`
		Logprobs    []tokenLogprob `json:"logprobs"`
	}
	reasoningText struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
)

// The statuses of responses and items.
const (
	statusInProgress = "in_progress"
	statusCompleted  = "completed"
	statusIncomplete = "incomplete"
	statusFailed     = "failed"
)

// responses answers POST /v1/responses. Nothing is kept of one.
func (s *Server) responses(w http.ResponseWriter, r *http.Request) error {
	var a asked
	q, g, err := s.converse(w, r, func(f *fields) (q chatRequest) {
		q, a = readResponses(f)
		return q
	})
	if err != nil {
		return renamed(err, ".parameters")
	}
	for _, name := range a.skipped {
		w.Header().Add("Windrow-Ignored", name)
	}
	head := g.response(a)
	if q.stream {
		err = s.streamResponse(w, r, g, head)
	} else {
		err = s.wholeResponse(w, r, g, head)
	}
	s.ended(r, g, err)
	return err
}

// response is one of which nothing has come.
func (r *run) response(a asked) response {
	o := r.params.options(r.model, 0).Sampling
	if o.TopP == 0 {
		o.TopP = 1
	}
	return response{
		ID: newID("resp_"), Object: "response", CreatedAt: time.Now().Unix(), Status: statusInProgress, Model: r.model.Name, Output: []any{},
		ServiceTier: "default", Temperature: o.Temperature, TopP: o.TopP, Truncation: "disabled",
		SystemFingerprint: r.model.Fingerprint, Windrow: r.own(), asked: a,
	}
}

// finish completes a response.
func (p *response) finish(g *run, parts *sections) {
	u := g.usage()
	p.Usage = &responseUsage{InputTokens: u.PromptTokens, OutputTokens: u.CompletionTokens, TotalTokens: u.TotalTokens}
	p.Usage.InputTokensDetails.CachedTokens = u.PromptTokensDetails.CachedTokens
	p.Usage.OutputTokensDetails.ReasoningTokens = u.CompletionTokensDetails.ReasoningTokens
	p.Windrow = g.ownInFull()
	p.Status = statusCompleted
	if g.choices[0].reason == answer.ReasonLength {
		p.Status, p.IncompleteDetails = statusIncomplete, &incompleteDetails{"max_output_tokens"}
	}
	for _, x := range parts.list {
		if !x.broken {
			p.Output = append(p.Output, x.whole())
		}
	}
}

// wholeResponse answers with one object.
func (s *Server) wholeResponse(w http.ResponseWriter, r *http.Request, g *run, p response) error {
	parts := sections{begin: func(_ int, x *section) { x.item = x.itemID() }, likely: g.likely(), keep: true}
	err := g.collect(r, func(u update) {
		parts.likely.tell(u.logprobs)
		for _, e := range u.events {
			parts.add(e)
		}
		if u.done {
			parts.finish(u.choice.reason == answer.ReasonLength)
		}
	})
	if err != nil {
		return err
	}
	p.finish(g, &parts)
	writeJSON(w, http.StatusOK, p)
	return nil
}

// itemID is a new id: a call's item has another than the call.
func (x *section) itemID() string {
	switch x.kind {
	case answer.Reasoning:
		return newID("rs_")
	case answer.Content:
		return newID("msg_")
	}
	return newID("fc_")
}

// whole is a section's item when it has ended.
func (x *section) whole() any {
	status := statusCompleted
	if x.cut {
		status = statusIncomplete
	}
	if x.kind == answer.CallBegin {
		return callItem{x.item, "function_call", status, x.id, x.name, x.text.String()}
	}
	return x.as(status, []any{x.part(x.text.String())})
}

// begun is a section's item when it begins.
func (x *section) begun() any {
	if x.kind == answer.CallBegin {
		return callItem{x.item, "function_call", statusInProgress, x.id, x.name, ""}
	}
	return x.as(statusInProgress, []any{})
}

func (x *section) as(status string, content []any) any {
	if x.kind == answer.Reasoning {
		return reasoningItem{x.item, "reasoning", status, []any{}, content, nil}
	}
	return messageItem{x.item, "message", status, "assistant", content}
}

// part is the only part of a section's content.
func (x *section) part(text string) any {
	if x.kind == answer.Reasoning {
		return reasoningText{"reasoning_text", text}
	}
	return outputText{"output_text", text, []any{}, append([]tokenLogprob{}, x.likely...)}
}
