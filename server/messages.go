package server

import (
	"encoding/json"
	"strings"

	"windrow/answer"
)

// readMessages reads a conversation's messages.
func readMessages(f *fields) (list []message) {
	raw := f.list("messages", maxMessages)
	if len(raw) == 0 {
		f.bad("messages", "want at least one")
		return nil
	}
	for i, item := range raw {
		o := f.nested(index("messages", i), item)
		list = append(list, readMessage(o))
		f.join(o)
		if f.err != nil {
			return nil
		}
	}
	return list
}

func readMessage(o *fields) (m message) {
	m.Role = o.text("role")
	m.Name = o.text("name")
	given := o.has("content")
	m.Content = readContent(o, "content")
	switch m.Role {
	case "developer":
		m.Role = "system" // what templates know
		fallthrough
	case "system", "user":
		if !given {
			o.bad("content", "is missing")
		}
	case "assistant":
		// The name that others have for it is taken, too.
		if m.ReasoningContent = o.text("reasoning_content"); m.ReasoningContent == "" {
			m.ReasoningContent = o.text("reasoning")
		}
		m.calls = readCalls(o)
	case "tool":
		m.ToolCallID = o.text("tool_call_id")
	default:
		o.bad("role", "%q: want system, developer, user, assistant or tool", m.Role)
	}
	return m
}

// readContent reads a text, or the texts of parts, which are joined by newlines.
func readContent(o *fields, name string) string {
	raw := o.raw(name)
	if raw == nil {
		return ""
	}
	if s, ok := textOf(raw); ok {
		return s
	}
	var parts []json.RawMessage
	if json.Unmarshal(raw, &parts) != nil {
		o.bad(name, "want a string or a list of parts")
		return ""
	}
	var texts []string
	for i, item := range parts {
		part := o.nested(index(name, i), item)
		switch kind := part.text("type"); kind {
		case "text", "input_text", "output_text":
			texts = append(texts, part.text("text"))
		case "refusal":
			texts = append(texts, part.text("refusal"))
		default:
			part.bad("type", "%q: want text, which is all that the model reads", kind)
		}
		o.join(part)
	}
	return strings.Join(texts, "\n")
}

// readCalls reads an assistant's calls. Arguments are a string, whatever is in it; an
// object is taken, too.
func readCalls(o *fields) (calls []answer.Call) {
	for i, item := range o.list("tool_calls", maxTools) {
		call := o.nested(index("tool_calls", i), item)
		if kind := call.text("type"); kind != "" && kind != "function" {
			call.bad("type", "%q: want function", kind)
		}
		c := answer.Call{ID: call.text("id")}
		fn := call.object("function")
		if fn == nil {
			call.bad("function", "is missing")
			o.join(call)
			continue
		}
		if c.Name = fn.text("name"); c.Name == "" {
			fn.bad("name", "is missing")
		}
		raw := fn.raw("arguments")
		if json.Unmarshal(raw, &c.Arguments) != nil {
			c.Arguments = string(raw)
		}
		call.join(fn)
		o.join(call)
		calls = append(calls, c)
	}
	return calls
}
