package server

import (
	"encoding/json"

	"windrow/answer"
)

// toolChoice says which calls an answer makes of the request's tools: what the fields of
// all endpoints that choose tools become. The zero value leaves it to the model.
type toolChoice struct {
	param    string // the field that chose, for errors; "": none did
	none     bool   // tools are not to be called, nor shown to the model
	required bool   // at least one call is made
	name     string // of the only tool that may be called; "": any
	single   bool   // no more than one call is made
}

// readTools reads tools, tool_choice and parallel_tool_calls. list is nil where no tool
// may be called.
func readTools(f *fields) (list json.RawMessage, choice toolChoice) {
	tools := f.list("tools", maxTools)
	names := map[string]bool{}
	for i, raw := range tools {
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
			if s == "" || len(s) > maxToolName {
				fn.bad("name", "want a name of 1 to %d bytes", maxToolName)
			}
			names[s] = true
			fn.text("description")
			if p := fn.object("parameters"); p != nil {
				fn.join(p)
			}
			fn.boolean("strict") // arguments are always held to their schema
			t.join(fn)
		}
		f.join(t)
	}
	choice = readToolChoice(f, names)
	if b := f.boolean("parallel_tool_calls"); b != nil {
		choice.single = !*b
	}
	if choice.required && len(tools) == 0 {
		f.bad(choice.param, "want tools beside it")
	}
	if choice.none || len(tools) == 0 {
		return nil, choice
	}
	return f.raw("tools"), choice
}

// readToolChoice reads tool_choice, which may name one of the tools.
func readToolChoice(f *fields, names map[string]bool) (c toolChoice) {
	raw := f.raw("tool_choice")
	if raw == nil {
		return c
	}
	c.param = "tool_choice"
	var s string
	if json.Unmarshal(raw, &s) == nil {
		switch s {
		case "auto":
		case "none":
			c.none = true
		case "required":
			c.required = true
		default:
			f.bad("tool_choice", "%s: want auto, none, required or an object", short(raw))
		}
		return c
	}
	o := f.object("tool_choice")
	if kind := o.text("type"); kind != "function" {
		o.bad("type", "%q: want function", kind)
	} else if fn := o.object("function"); fn == nil {
		o.bad("function", "is missing")
	} else {
		c.required, c.name = true, fn.text("name")
		if !names[c.name] {
			fn.bad("name", "there is no such tool")
		}
		o.join(fn)
	}
	f.join(o)
	return c
}

// held is what the choice holds an answer to.
func (c *toolChoice) held() answer.Held {
	return answer.Held{Required: c.required, Name: c.name, Single: c.single}
}

// binding is the field that an answer must be held to, even where that is not possible:
// "" where the model may call tools as it likes.
func (c *toolChoice) binding() string {
	switch {
	case c.required:
		return c.param
	case c.single:
		return "parallel_tool_calls"
	}
	return ""
}
