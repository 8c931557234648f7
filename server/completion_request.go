package server

import (
	"encoding/json"
	"math"
)

// completionRequest is a POST to /v1/completions.
type completionRequest struct {
	params
	prompt string
	ids    []int32 // in place of prompt, where it was given as ids
	plain  bool    // special tokens in the prompt are ordinary text
}

// readCompletion reads a completion; what is wrong with it is the fields' error.
func readCompletion(f *fields) (r completionRequest) {
	r.params = readParams(f)
	readPrompt(f, &r)
	r.form = readForm(f, false)
	checkForm(f, &r.params)
	if b := f.boolean("parse_special"); b != nil {
		r.plain = !*b
	}
	if f.isTrue("echo") {
		f.fail(unsupported("echo", "true"))
	}
	if f.text("suffix") != "" {
		f.fail(unsupported("suffix", "a text"))
	}
	if n := f.integer("best_of", 1, maxChoices); n != nil && *n > 1 {
		f.fail(unsupported("best_of", "more than 1"))
	}
	if f.has("logprobs") && string(f.raw("logprobs")) != "false" {
		f.fail(unsupported("logprobs", "this field"))
	}
	return r
}

// readPrompt reads a text, ids, or a list of one text.
func readPrompt(f *fields, r *completionRequest) {
	raw := f.raw("prompt")
	var list []json.RawMessage
	switch {
	case raw == nil:
		f.bad("prompt", "is missing")
	case json.Unmarshal(raw, &r.prompt) == nil:
	case json.Unmarshal(raw, &list) != nil:
		f.bad("prompt", "want a string or a list of token ids")
	case len(list) == 1 && json.Unmarshal(list[0], &r.prompt) == nil:
	case len(list) > 0 && list[0][0] == '"':
		f.fail(unsupported("prompt", "a list of several texts"))
	default:
		var ids []int64
		if json.Unmarshal(raw, &ids) != nil {
			f.bad("prompt", "want a string or a list of token ids")
		}
		for i, id := range ids {
			if id < 0 || id > math.MaxInt32 {
				f.bad(index("prompt", i), "want a token id")
				return
			}
			r.ids = append(r.ids, int32(id))
		}
	}
	if f.err == nil && r.prompt == "" && len(r.ids) == 0 {
		f.bad("prompt", "is empty")
	}
}
