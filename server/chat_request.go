package server

import (
	"encoding/json"

	"windrow/answer"
	"windrow/tokenizer"
)

// chatRequest is a POST to /v1/chat/completions.
type chatRequest struct {
	params
	messages []message
	tools    json.RawMessage // as given; nil: none, or not to be used
	thinking *bool           // nil: the template's choice
}

// message is one of a conversation, before it is known how its model writes calls.
type message struct {
	tokenizer.Message
	calls []answer.Call
}

// readChat reads a conversation; what is wrong with it is the fields' error.
func readChat(f *fields) (r chatRequest) {
	r.params = readParams(f)
	r.messages = readMessages(f)
	r.tools = readTools(f)
	r.thinking = readThinking(f)
	refuseLogprobs(f)
	r.form = readForm(f, true)
	checkForm(f, &r.params)
	if r.form != nil && r.tools != nil {
		f.fail(unsupported(r.form.param, "a form of the answer beside tools"))
	}
	for _, item := range f.list("modalities", 8) {
		if string(item) != `"text"` {
			f.bad("modalities", "want text alone")
		}
	}
	for _, name := range []string{"functions", "function_call", "audio", "prediction", "web_search_options"} {
		if f.has(name) {
			f.fail(unsupported(name, "this field"))
		}
	}
	return r
}

func refuseLogprobs(f *fields) {
	if f.isTrue("logprobs") {
		f.fail(unsupported("logprobs", "true"))
	}
	if n := f.integer("top_logprobs", 0, 20); n != nil && *n > 0 {
		f.fail(unsupported("top_logprobs", "a number over 0"))
	}
}

// readThinking reads chat_template_kwargs and reasoning_effort.
func readThinking(f *fields) (thinking *bool) {
	if f.text("reasoning_effort") == "none" {
		thinking = new(bool)
	} else if f.has("reasoning_effort") {
		delete(f.taken, "reasoning_effort") // there are no degrees
	}
	o := f.object("chat_template_kwargs")
	if o == nil {
		return thinking
	}
	if b := o.boolean("enable_thinking"); b != nil {
		thinking = b
	}
	for _, name := range o.unknown() {
		o.bad(name, "want no variable but enable_thinking")
	}
	f.join(o)
	return thinking
}

// readTools reads tools and tool_choice.
func readTools(f *fields) json.RawMessage {
	list := f.list("tools", maxTools)
	names := map[string]bool{}
	for i, raw := range list {
		name := index("tools", i)
		t := f.nested(name, raw)
		if kind := t.text("type"); kind != "function" {
			t.bad("type", "%q: want function", kind)
		}
		fn := t.object("function")
		if fn == nil {
			t.bad("function", "is missing")
		} else {
			s := fn.text("name")
			if s == "" || len(s) > 256 {
				fn.bad("name", "want a name of 1 to 256 bytes")
			}
			names[s] = true
			fn.text("description")
			if p := fn.object("parameters"); p != nil {
				fn.join(p)
			}
			if fn.isTrue("strict") {
				fn.fail(unsupported(fn.path+"strict", "true"))
			}
			t.join(fn)
		}
		f.join(t)
	}
	use := readToolChoice(f, names)
	if b := f.boolean("parallel_tool_calls"); b != nil && !*b && use && len(list) > 0 {
		f.fail(unsupported("parallel_tool_calls", "false"))
	}
	if !use || len(list) == 0 {
		return nil
	}
	return f.raw("tools")
}

// readToolChoice reports whether tools may be called.
func readToolChoice(f *fields, names map[string]bool) (use bool) {
	raw := f.raw("tool_choice")
	if raw == nil {
		return true
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		switch s {
		case "auto":
			return true
		case "none":
			return false
		case "required":
			f.fail(unsupported("tool_choice", "required"))
		default:
			f.bad("tool_choice", "%s: want auto or none", short(raw))
		}
		return false
	}
	o := f.object("tool_choice")
	if kind := o.text("type"); kind != "function" {
		o.bad("type", "%q: want function", kind)
	} else if fn := o.object("function"); fn == nil {
		o.bad("function", "is missing")
	} else {
		if name := fn.text("name"); !names[name] {
			fn.bad("name", "there is no such tool")
		}
		o.join(fn)
	}
	f.join(o)
	f.fail(unsupported("tool_choice", "the name of a tool"))
	return false
}
