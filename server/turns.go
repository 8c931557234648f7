package server

import (
	"encoding/json"
	"errors"
	"strings"

	"windrow/answer"
	"windrow/tokenizer"
)

// turns collects a conversation's messages, as templates know them, from what other
// APIs make of one: blocks, or items of which several are one turn.
type turns struct{ list []message }

// last is the last message, where it is of that role; else nil.
func (t *turns) last(role string) *message {
	if n := len(t.list); n > 0 && t.list[n-1].Role == role {
		return &t.list[n-1]
	}
	return nil
}

func (t *turns) add(role, text string) *message {
	t.list = append(t.list, message{Message: tokenizer.Message{Role: role, Content: text}})
	return &t.list[len(t.list)-1]
}

// join appends a text to the last message where it is of that role, as one more line;
// else it is a message of its own.
func (t *turns) join(role, text string) {
	if m := t.last(role); m != nil {
		m.Content = joinLines(m.Content, text)
		return
	}
	t.add(role, text)
}

// beginning reports whether nobody but the system has spoken.
func (t *turns) beginning() bool {
	return len(t.list) == 0 || t.list[len(t.list)-1].Role == "system" && len(t.list) == 1
}

// tool is the result of a call.
func (t *turns) tool(id, text string) { t.add("tool", text).ToolCallID = id }

// assistant is the message of the model's turn that goes on, or begins.
func (t *turns) assistant() *message {
	if m := t.last("assistant"); m != nil {
		return m
	}
	return t.add("assistant", "")
}

func (m *message) think(text string) { m.ReasoningContent = joinLines(m.ReasoningContent, text) }

func (m *message) call(c answer.Call) { m.calls = append(m.calls, c) }

// joinLines is two texts, a newline between them where both have something.
func joinLines(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n" + b
}

// functionTool is a tool as templates know it.
type functionTool struct {
	Type     string       `json:"type"`
	Function toolFunction `json:"function"`
}

type toolFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Strict      *bool           `json:"strict,omitempty"`
}

// readFunction reads a tool that is a function, whose parameters an API has under that
// name.
func readFunction(t *fields, parameters string) functionTool {
	fn := toolFunction{Name: t.text("name"), Description: t.text("description"), Parameters: t.raw(parameters), Strict: t.boolean("strict")}
	if fn.Name == "" || len(fn.Name) > maxToolName {
		t.bad("name", "want a name of 1 to %d bytes", maxToolName)
	}
	t.join(t.object(parameters))
	return functionTool{"function", fn}
}

// chatTools are another API's tools, read as those of a chat. choice is tool_choice in
// the chat's form, nil: absent; single: at most one call.
func chatTools(f *fields, tools []functionTool, choice any, single bool) (json.RawMessage, toolChoice) {
	members := map[string]json.RawMessage{}
	set := func(name string, v any) {
		var b strings.Builder
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			f.fail(err) // what was JSON before: cannot be
		}
		members[name] = json.RawMessage(strings.TrimSuffix(b.String(), "\n"))
	}
	if len(tools) > 0 {
		set("tools", tools)
	}
	if choice != nil {
		set("tool_choice", choice)
	}
	if single {
		set("parallel_tool_calls", false)
	}
	chat := &fields{members: members, taken: map[string]bool{}}
	list, use := readTools(chat)
	f.join(chat)
	return list, use
}

// renamed is an error whose fields have the chat's names in the words of an API where
// the parameters of tools are called something else.
func renamed(err error, parameters string) error {
	var e *apiError
	if !errors.As(err, &e) {
		return err
	}
	const name = ".function.parameters"
	e.Message = strings.ReplaceAll(e.Message, name, parameters)
	if e.Param != nil {
		param := strings.ReplaceAll(*e.Param, name, parameters)
		e.Param = &param
	}
	return e
}

// chosen is a tool_choice that names a function.
func chosen(name string) any {
	return functionTool{Type: "function", Function: toolFunction{Name: name}}
}
