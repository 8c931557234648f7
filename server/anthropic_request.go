package server

import (
	"encoding/json"
	"math"
	"strings"

	"windrow/answer"
)

// readAnthropic reads a POST to /v1/messages: a conversation in the form of Anthropic's
// API. What is wrong with it is the fields' error.
func readAnthropic(f *fields) (r chatRequest) {
	r.params = readCommon(f)
	r.stop = readStop(f, "stop_sequences")
	if n := f.integer("max_tokens", 1, math.MaxInt32); n != nil {
		r.maxTokens = *n
	}
	r.messages = readAnthropicMessages(f)
	r.tools, r.choice = readAnthropicTools(f)
	r.thinking, r.thinkingBudget = readAnthropicThinking(f, r.maxTokens)
	r.form = oneForm(f, readForm(f), readOutputConfig(f))
	checkConversation(f, &r)
	for _, name := range []string{"mcp_servers", "container"} {
		if raw := f.raw(name); raw != nil && string(raw) != "[]" {
			f.fail(unsupported(name, "this field"))
		}
	}
	return r
}

// readAnthropicMessages reads system and messages.
func readAnthropicMessages(f *fields) []message {
	var t turns
	if f.has("system") {
		if text := readSystem(f, "system"); text != "" {
			t.add("system", text)
		}
	}
	raw := f.list("messages", maxMessages)
	if len(raw) == 0 {
		f.bad("messages", "want at least one")
		return nil
	}
	role := ""
	for i, item := range raw {
		o := f.nested(index("messages", i), item)
		switch role = o.text("role"); role {
		case "user":
			readUserTurn(o, &t)
		case "assistant":
			readAssistantTurn(o, &t)
		case "system":
			// It stays where it is. Templates take a system message at the beginning
			// only, so later it is the user's turn that says it.
			if text := readSystem(o, "content"); t.beginning() {
				t.join("system", text)
			} else {
				t.join("user", text)
			}
		default:
			o.bad("role", "%q: want user or assistant", role)
		}
		f.join(o)
		if f.err != nil {
			return nil
		}
	}
	if role == "assistant" {
		f.fail(unsupported(index("messages", len(raw)-1), "going on with a message of the assistant"))
	}
	return t.list
}

// billing is how a block begins that a client puts before its system prompt. It is
// another for each request: a prompt with it is never found in the cache.
const billing = "x-anthropic-billing-header"

// readSystem reads a system prompt: a text, or blocks of text.
func readSystem(o *fields, name string) string {
	var texts []string
	add := func(text string) {
		if strings.HasPrefix(text, billing) {
			_, text, _ = strings.Cut(text, "\n")
		}
		if text != "" {
			texts = append(texts, text)
		}
	}
	for _, b := range readBlocks(o, name) {
		if b.kind == "text" {
			add(b.text("text"))
		} else {
			b.refuse()
		}
		o.join(b.fields)
	}
	return strings.Join(texts, "\n")
}

// block is a part of a message's content.
type block struct {
	*fields
	kind string
}

// refuse is a block that cannot be read.
func (b *block) refuse() {
	b.bad("type", "%q: the model reads text only", short([]byte(b.kind)))
}

// readBlocks reads a content: a text is one block.
func readBlocks(o *fields, name string) (list []block) {
	raw := o.raw(name)
	if raw == nil {
		o.bad(name, "is missing")
		return nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []block{{&fields{path: o.path + name + ".", taken: map[string]bool{}, members: map[string]json.RawMessage{"text": raw}}, "text"}}
	}
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil {
		o.bad(name, "want a string or a list of blocks")
		return nil
	}
	for i, item := range items {
		b := o.nested(index(name, i), item)
		kind := b.text("type")
		o.join(b)
		list = append(list, block{b, kind})
	}
	return list
}

// readUserTurn reads what the user says, and the results of calls.
func readUserTurn(o *fields, t *turns) {
	list := readBlocks(o, "content")
	if len(list) == 0 {
		o.bad("content", "want at least one block")
	}
	for _, b := range list {
		switch b.kind {
		case "text":
			t.join("user", b.text("text"))
		case "tool_result":
			b.boolean("is_error") // the text says so
			t.tool(b.text("tool_use_id"), readResult(b))
		default:
			b.refuse()
		}
		o.join(b.fields)
	}
}

// readResult reads what a tool answered.
func readResult(b block) string {
	if !b.has("content") {
		return ""
	}
	var texts []string
	for _, part := range readBlocks(b.fields, "content") {
		if part.kind == "text" {
			texts = append(texts, part.text("text"))
		} else {
			part.refuse()
		}
		b.join(part.fields)
	}
	return strings.Join(texts, "\n")
}

// readAssistantTurn reads what the model said before. Blocks of text are parts of one.
func readAssistantTurn(o *fields, t *turns) {
	list := readBlocks(o, "content")
	m := t.add("assistant", "")
	for _, b := range list {
		switch b.kind {
		case "text":
			m.Content += b.text("text")
		case "thinking":
			b.text("signature")
			m.think(b.text("thinking"))
		case "redacted_thinking": // another model's, and not readable
		case "tool_use":
			c := answer.Call{ID: b.text("id"), Name: b.text("name"), Arguments: "{}"}
			if c.Name == "" {
				b.bad("name", "is missing")
			}
			if in := b.object("input"); in != nil {
				b.join(in)
				c.Arguments = string(b.raw("input"))
			}
			m.call(c)
		default:
			b.refuse()
		}
		o.join(b.fields)
	}
}

// readAnthropicTools reads tools and tool_choice.
func readAnthropicTools(f *fields) (json.RawMessage, toolChoice) {
	var list []functionTool
	names := map[string]bool{}
	for i, raw := range f.list("tools", maxTools) {
		t := f.nested(index("tools", i), raw)
		if kind := t.text("type"); kind != "" && kind != "custom" {
			t.fail(unsupported(t.path+"type", "a tool of type %q", short([]byte(kind))))
		}
		tool := readFunction(t, "input_schema")
		if !t.has("input_schema") {
			t.bad("input_schema", "is missing")
		}
		names[tool.Function.Name] = true
		list = append(list, tool)
		f.join(t)
	}
	if f.err != nil {
		return nil, toolChoice{}
	}
	choice, single := readAnthropicChoice(f, names)
	return chatTools(f, list, choice, single)
}

// readAnthropicChoice reads tool_choice into the chat's form.
func readAnthropicChoice(f *fields, names map[string]bool) (choice any, single bool) {
	o := f.object("tool_choice")
	if o == nil {
		return nil, false
	}
	defer f.join(o)
	single = o.isTrue("disable_parallel_tool_use")
	switch kind := o.text("type"); kind {
	case "auto", "none":
		return kind, single
	case "any":
		return "required", single
	case "tool":
		name := o.text("name")
		if !names[name] {
			o.bad("name", "there is no such tool")
		}
		return chosen(name), single
	default:
		o.bad("type", "%q: want auto, any, tool or none", short([]byte(kind)))
		return nil, single
	}
}

// readAnthropicThinking reads thinking: off where it is not asked for, as the API has it;
// adaptive is the model's choice.
func readAnthropicThinking(f *fields, maxTokens int) (thinking *bool, budget int) {
	thinking = new(bool)
	o := f.object("thinking")
	if o == nil {
		return thinking, 0
	}
	defer f.join(o)
	n := o.integer("budget_tokens", 1, math.MaxInt32)
	switch kind := o.text("type"); kind {
	case "disabled":
	case "adaptive":
		return nil, 0
	case "enabled":
		*thinking = true
		switch {
		case n == nil:
			o.bad("budget_tokens", "is missing")
		case maxTokens > 0 && *n >= maxTokens:
			o.bad("budget_tokens", "%d: want less than max_tokens, %d", *n, maxTokens)
		default:
			budget = *n
		}
	default:
		o.bad("type", "%q: want enabled, disabled or adaptive", short([]byte(kind)))
	}
	return thinking, budget
}

// readOutputConfig reads output_config, whose format is a form of the answer.
func readOutputConfig(f *fields) (x *form) {
	o := f.object("output_config")
	if o == nil {
		return nil
	}
	defer f.join(o)
	o.text("effort") // there are no degrees
	format := o.object("format")
	if format == nil {
		return nil
	}
	defer o.join(format)
	if kind := format.text("type"); kind != "json_schema" {
		format.bad("type", "%q: want json_schema", short([]byte(kind)))
		return nil
	}
	return readSchema(format, format.path+"schema")
}

// oneForm is the one of two forms that is asked for.
func oneForm(f *fields, a, b *form) *form {
	switch {
	case a == nil:
		return b
	case b != nil:
		f.bad(b.param, "want one form of the answer: %s is given, too", a.param)
	}
	return a
}
