package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"windrow/decoder"
	"windrow/engine"
	"windrow/schedule"
	"windrow/tokenizer"
)

// The types of errors, and the codes that clients look at.
const (
	typeInvalid    = "invalid_request_error"
	typeAuth       = "authentication_error"
	typePermission = "permission_error"
	typeNotFound   = "not_found_error"
	typeRate       = "rate_limit_error"
	typeServer     = "server_error"

	codeValue       = "invalid_value"
	codeUnsupported = "unsupported"
	codeContext     = "context_length_exceeded"
)

// apiError is what a client is told of a request that failed.
type apiError struct {
	status     int
	retryAfter time.Duration // 0: not said
	allow      string        // of 405: the methods that there are
	tooLong    *engine.ContextError

	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

func (e *apiError) Error() string { return e.Message }

// mostQuoted is how many bytes of a client's text stand in a message.
const mostQuoted = 300

func newError(status int, kind, code, format string, args ...any) *apiError {
	for i, x := range args {
		if s, ok := x.(string); ok && len(s) > mostQuoted {
			args[i] = strings.ToValidUTF8(s[:mostQuoted], "") + "…"
		}
	}
	e := &apiError{status: status, Type: kind, Message: fmt.Sprintf(format, args...)}
	if code != "" {
		e.Code = &code
	}
	return e
}

// badValue is a field that cannot be what it is.
func badValue(param, format string, args ...any) *apiError {
	e := newError(http.StatusBadRequest, typeInvalid, codeValue, "%s: "+format, append([]any{param}, args...)...)
	e.Param = &param
	return e
}

// unsupported is a field that would have to be obeyed, and cannot be yet.
func unsupported(param, format string, args ...any) *apiError {
	e := badValue(param, format+" is not supported yet", args...)
	code := codeUnsupported
	e.Code = &code
	return e
}

// fields are the names of decoder's options in requests.
var optionFields = map[string]string{
	"top-k": "top_k", "top-p": "top_p", "min-p": "min_p", "repetition-penalty": "repetition_penalty",
	"presence-penalty": "presence_penalty", "frequency-penalty": "frequency_penalty", "logit-bias": "logit_bias",
	"max-tokens": "max_tokens", "mask-id": "mode", "stop id": "stop",
}

// errorOf says an error of the packages below in the API's words.
func errorOf(err error) *apiError {
	var (
		api      *apiError
		tooLong  *engine.ContextError
		mode     *engine.ModeError
		head     *engine.HeadError
		bias     *engine.BiasError
		template *engine.TemplateError
		option   *decoder.OptionError
		full     *schedule.FullError
		late     *schedule.LateError
		large    *http.MaxBytesError
	)
	if e := poolError(err); e != nil {
		return e
	}
	switch {
	case errors.As(err, &api):
		return api
	case errors.As(err, &tooLong):
		e := newError(http.StatusBadRequest, typeInvalid, codeContext, "%v", tooLong)
		e.tooLong = tooLong
		return e
	case errors.As(err, &mode) && mode.Draft != "":
		return badValue("draft", "%v", mode)
	case errors.As(err, &mode):
		return badValue("mode", "%v", mode)
	case errors.As(err, &head):
		return badValue("draft", "%v", head)
	case errors.As(err, &bias):
		return badValue("logit_bias", "%v", bias)
	case errors.As(err, &option):
		name := option.Option
		if field, ok := optionFields[name]; ok {
			name = field
		}
		return badValue(name, "%s: want %s", option.Got, option.Want)
	case errors.Is(err, engine.ErrEmptyPrompt):
		return badValue("prompt", "is empty")
	case errors.As(err, &template), errors.Is(err, tokenizer.ErrNoChatTemplate):
		return newError(http.StatusBadRequest, typeInvalid, codeUnsupported, "the model has no chat template: use /v1/completions")
	case errors.As(err, &full):
		e := newError(http.StatusTooManyRequests, typeRate, "queue_full", "%v", full)
		e.retryAfter = full.RetryAfter
		return e
	case errors.As(err, &late):
		e := newError(http.StatusServiceUnavailable, typeServer, "queue_timeout", "%v", late)
		e.retryAfter = 5 * time.Second
		return e
	case errors.Is(err, schedule.ErrDraining), errors.Is(err, schedule.ErrClosed):
		return drainingError()
	case errors.As(err, &large):
		return newError(http.StatusRequestEntityTooLarge, typeInvalid, "request_too_large", "the body has more than %d bytes", large.Limit)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return newError(http.StatusServiceUnavailable, typeServer, "cancelled", "the request was cancelled")
	}
	return newError(http.StatusInternalServerError, typeServer, "internal_error", "the model failed: %v", err)
}

func drainingError() *apiError {
	e := newError(http.StatusServiceUnavailable, typeServer, "draining", "the server is going down")
	e.retryAfter = 5 * time.Second
	return e
}

// errorBody is the API's error object.
type errorBody struct {
	Error *apiError `json:"error"`
}

// writeError answers with an error; nothing may have been written before.
func writeError(w http.ResponseWriter, d dialect, e *apiError, id string) {
	h := w.Header()
	if e.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(e.retryAfter.Seconds()))))
	}
	if e.allow != "" {
		h.Set("Allow", e.allow)
	}
	if e.status == http.StatusInternalServerError {
		h.Set("X-Should-Retry", "false")
	}
	if e.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	writeJSON(w, d.status(e), d.body(e, id))
}

// writeJSON answers with a value, which must be one that encoding/json can write.
func writeJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own types: cannot happen, and the middleware answers 500
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(data)+1))
	w.WriteHeader(status)
	w.Write(append(data, '\n'))
}
