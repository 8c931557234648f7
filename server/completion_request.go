package server

import (
	"bytes"
	"encoding/json"
	"math"

	"windrow/decoder"
)

// completionRequest is a POST to /v1/completions.
type completionRequest struct {
	params
	prompts []prompt
	plain   bool // special tokens in prompts are ordinary text
	echo    bool // texts begin with their prompts
}

// prompt is a text, or ids.
type prompt struct {
	name string // of the field
	text string
	ids  []int32
}

// The bounds of a completion's prompts and of its choices, of all prompts together.
const (
	maxPrompts           = 64
	maxCompletionChoices = 128
)

// readCompletion reads a completion; what is wrong with it is the fields' error.
func readCompletion(f *fields) (r completionRequest) {
	r.params = readParams(f, 0)
	if r.silent {
		// The prompt's end brings one token in ar, and nothing is told of it.
		r.maxTokens, r.mode, r.window, r.draft = 1, decoder.AR, 0, ""
	}
	r.prompts = readPrompts(f)
	if n := len(r.prompts) * r.choices; n > maxCompletionChoices {
		f.bad("n", "%d prompts of %d choices: want at most %d choices in all", len(r.prompts), r.choices, maxCompletionChoices)
	}
	r.form = readForm(f)
	checkForm(f, &r.params)
	if b := f.boolean("parse_special"); b != nil {
		r.plain = !*b
	}
	if string(f.raw("logprobs")) != "false" {
		r.logprobs = f.integer("logprobs", 0, decoder.MaxLogprobs)
	}
	if r.echo = f.isTrue("echo"); r.echo {
		r.promptLogprobs = r.logprobs
	}
	for _, name := range []string{"tools", "functions"} {
		if raw := f.raw(name); raw != nil && string(raw) != "[]" {
			f.fail(unsupported(name, "a call in a completion"))
		}
	}
	if f.text("suffix") != "" {
		f.fail(unsupported("suffix", "a text"))
	}
	if n := f.integer("best_of", 1, maxChoices); n != nil && *n > 1 {
		f.fail(unsupported("best_of", "more than 1"))
	}
	return r
}

// readPrompts reads prompt: a text, ids, or a list of texts or of lists of ids.
func readPrompts(f *fields) (list []prompt) {
	const want = "want a string, a list of token ids, or a list of either"
	raw := f.raw("prompt")
	var text string
	var items []json.RawMessage
	ids, bad, isIDs := parseIDs(raw)
	switch {
	case raw == nil:
		f.bad("prompt", "is missing")
	case isIDs && bad >= 0:
		f.bad(index("prompt", bad), "want a token id")
	case isIDs:
		list = []prompt{{name: "prompt", ids: ids}}
	case json.Unmarshal(raw, &text) == nil:
		list = []prompt{{"prompt", text, nil}}
	case json.Unmarshal(raw, &items) != nil:
		f.bad("prompt", want)
	case len(items) > 0 && (items[0][0] == '"' || items[0][0] == '['):
		if len(items) > maxPrompts {
			f.bad("prompt", "%d of them: want at most %d", len(items), maxPrompts)
			return nil
		}
		for i, item := range items {
			p := prompt{name: index("prompt", i)}
			if json.Unmarshal(item, &p.text) != nil || string(item) == "null" {
				p.ids = readIDs(f, p.name, item)
			}
			list = append(list, p)
		}
	default:
		f.bad("prompt", "want a string or a list of token ids")
	}
	for _, p := range list {
		if p.text == "" && len(p.ids) == 0 {
			f.bad(p.name, "is empty")
		}
	}
	return list
}

// readIDs reads a list of token ids.
func readIDs(f *fields, name string, raw json.RawMessage) []int32 {
	ids, bad, ok := parseIDs(raw)
	switch {
	case !ok:
		f.bad(name, "want a string or a list of token ids")
	case bad >= 0:
		f.bad(index(name, bad), "want a token id")
		return nil
	}
	return ids
}

// parseIDs reads valid JSON as a list of whole numbers, which encoding/json takes five
// times as long for; ok reports whether it is one. bad is the first that is no id, -1:
// none.
func parseIDs(raw json.RawMessage) (ids []int32, bad int, ok bool) {
	rest, found := bytes.CutPrefix(bytes.TrimSpace(raw), []byte("["))
	if !found {
		return nil, -1, false
	}
	rest, bad = bytes.TrimSuffix(rest, []byte("]")), -1
	ids = make([]int32, 0, 1+bytes.Count(rest, []byte(",")))
	for i := 0; len(bytes.TrimSpace(rest)) > 0; i++ {
		item, after, _ := bytes.Cut(rest, []byte(","))
		rest = after
		item = bytes.TrimSpace(item)
		n, digits := int64(0), item
		if len(item) > 0 && item[0] == '-' {
			digits = item[1:]
		}
		if len(digits) == 0 {
			return nil, -1, false
		}
		for _, c := range digits {
			if c < '0' || c > '9' {
				return nil, -1, false
			}
			n = min(n*10+int64(c-'0'), math.MaxInt32+1)
		}
		if len(digits) < len(item) || n > math.MaxInt32 {
			if bad < 0 {
				bad = i
			}
			n = 0
		}
		ids = append(ids, int32(n))
	}
	return ids, bad, true
}
