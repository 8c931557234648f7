package server

import (
	"fmt"
	"net/http"
	"strings"
)

// dialect is the API whose words an error is said in.
type dialect uint8

const (
	openAI    dialect = iota
	anthropic         // /v1/messages
	ollama            // /api
)

// dialectOf is the API of a path, whether or not there is anything at it.
func dialectOf(path string) dialect {
	below := func(root string) bool { return path == root || strings.HasPrefix(path, root+"/") }
	switch {
	case below("/v1/messages"), below("/messages"):
		return anthropic
	case below("/api"):
		return ollama
	}
	return openAI
}

// speaks is the API that a request is answered in: its path's, or, of models, the one
// whose version the client names.
func speaks(r *http.Request) dialect {
	d := dialectOf(r.URL.Path)
	path := strings.TrimPrefix(r.URL.Path, "/v1")
	if d == openAI && r.Header.Get("anthropic-version") != "" && (path == "/models" || strings.HasPrefix(path, "/models/")) {
		return anthropic
	}
	return d
}

// statusOverloaded is what Anthropic's API says where there is no room or no time.
const statusOverloaded = 529

// status is an error's HTTP status.
func (d dialect) status(e *apiError) int {
	if d == anthropic && (e.status == http.StatusTooManyRequests || e.status == http.StatusServiceUnavailable) {
		return statusOverloaded
	}
	return e.status
}

// body is what is written of an error; id is the request's.
func (d dialect) body(e *apiError, id string) any {
	switch d {
	case anthropic:
		return anthropicError{Type: "error", Error: anthropicFault{anthropicType(d.status(e)), anthropicMessage(e)}, RequestID: id}
	case ollama:
		return map[string]string{"error": e.Message}
	}
	return errorBody{e}
}

// The wire format of Anthropic's errors.
type (
	anthropicError struct {
		Type      string         `json:"type"`
		Error     anthropicFault `json:"error"`
		RequestID string         `json:"request_id"`
	}
	anthropicFault struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	}
)

// anthropicType is the type of an error of that status.
func anthropicType(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return typeAuth
	case http.StatusForbidden:
		return typePermission
	case http.StatusNotFound:
		return typeNotFound
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case statusOverloaded:
		return "overloaded_error"
	case http.StatusInternalServerError:
		return "api_error"
	}
	return typeInvalid
}

// anthropicMessage is an error's text. What is too long is said in the words that
// clients look for, to ask for less or to shorten the conversation.
func anthropicMessage(e *apiError) string {
	switch long := e.tooLong; {
	case long == nil:
		return e.Message
	case long.PromptTokens >= long.Context:
		return fmt.Sprintf("prompt is too long: %d tokens > %d maximum", long.PromptTokens, long.Context)
	default:
		return fmt.Sprintf("input length and `max_tokens` exceed context limit: %d + %d > %d, decrease input length or `max_tokens` and try again",
			long.PromptTokens, long.MaxTokens, long.Context)
	}
}
