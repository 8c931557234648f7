package server

import (
	"encoding/json"
	"math"

	"windrow/answer"
)

// asked is what a response repeats of its request.
type asked struct {
	Instructions      *string         `json:"instructions"`
	MaxOutputTokens   *int            `json:"max_output_tokens"`
	Metadata          json.RawMessage `json:"metadata"`
	ParallelToolCalls bool            `json:"parallel_tool_calls"`
	Reasoning         askedReasoning  `json:"reasoning"`
	Text              askedText       `json:"text"`
	ToolChoice        json.RawMessage `json:"tool_choice"`
	Tools             []any           `json:"tools"`
	User              *string         `json:"user"`
	TopLogprobs       int             `json:"top_logprobs"`

	skipped []string // tools that are not functions, by their place
}

type askedReasoning struct {
	Effort  *string `json:"effort"`
	Summary *string `json:"summary"`
}

type askedText struct {
	Format json.RawMessage `json:"format"`
}

// readResponses reads a POST to /v1/responses, and what its response repeats. What is
// wrong with it is the fields' error.
func readResponses(f *fields) (r chatRequest, a asked) {
	r.params = readCommon(f)
	if a.MaxOutputTokens = f.integer("max_output_tokens", 1, math.MaxInt32); a.MaxOutputTokens != nil {
		r.maxTokens = *a.MaxOutputTokens
	}
	a.Instructions = f.optional("instructions")
	r.messages = readInput(f, a.Instructions)
	r.tools, r.choice = readResponsesTools(f, &a)
	r.thinking = readReasoning(f, &a)
	r.form = oneForm(f, readForm(f), readTextFormat(f, &a))
	checkConversation(f, &r)
	if o := f.object("stream_options"); o != nil {
		o.boolean("include_obfuscation") // there is none
		f.join(o)
	}
	a.Metadata = json.RawMessage("{}")
	if o := f.object("metadata"); o != nil {
		a.Metadata = f.raw("metadata")
	}
	a.User = f.optional("user")
	f.boolean("store") // nothing is
	refuseState(f)
	if r.logprobs = readIncluded(f); r.logprobs != nil {
		a.TopLogprobs = *r.logprobs
	}
	return r, a
}

// refuseState refuses what would need something that was kept of an earlier request, or
// is done outside of this one.
func refuseState(f *fields) {
	for _, name := range []string{"previous_response_id", "conversation"} {
		if f.has(name) {
			f.bad(name, "nothing is kept between requests: want the whole conversation as input")
		}
	}
	if f.has("prompt") {
		f.bad("prompt", "no prompts are kept here: want input and instructions")
	}
	if f.isTrue("background") {
		f.fail(unsupported("background", "true"))
	}
	if s := f.text("truncation"); s != "" && s != "disabled" {
		f.bad("truncation", "%q: want disabled: nothing is cut here without a word", short([]byte(s)))
	}
	f.integer("max_tool_calls", 0, math.MaxInt32) // of tools that are called here: there are none
}

// readReasoning reads reasoning: an effort of none switches thinking off, and there are
// no other degrees.
func readReasoning(f *fields, a *asked) (thinking *bool) {
	o := f.object("reasoning")
	if o == nil {
		return nil
	}
	defer f.join(o)
	a.Reasoning.Effort, a.Reasoning.Summary = o.optional("effort"), o.optional("summary")
	if e := a.Reasoning.Effort; e != nil && *e == "none" {
		thinking = new(bool)
	}
	return thinking
}

// readTextFormat reads text, whose format is a form of the answer.
func readTextFormat(f *fields, a *asked) *form {
	a.Text.Format = json.RawMessage(`{"type":"text"}`)
	o := f.object("text")
	if o == nil {
		return nil
	}
	defer f.join(o)
	o.text("verbosity") // there are no degrees
	format := o.object("format")
	if format == nil {
		return nil
	}
	defer o.join(format)
	a.Text.Format = o.raw("format")
	switch kind := format.text("type"); kind {
	case "text":
	case "json_object":
		return &form{"text.format", "schema", `{"type": "object"}`}
	case "json_schema":
		return readNamedSchema(format, "text.format.schema")
	default:
		format.bad("type", "%q: want text, json_object or json_schema", short([]byte(kind)))
	}
	return nil
}

// readResponsesTools reads tools, tool_choice and parallel_tool_calls. Tools that are not
// functions are left out: they would be called by the server, which has none.
func readResponsesTools(f *fields, a *asked) (json.RawMessage, toolChoice) {
	var list []functionTool
	names := map[string]bool{}
	a.Tools, a.ToolChoice = []any{}, json.RawMessage(`"auto"`)
	for i, raw := range f.list("tools", maxTools) {
		t := f.nested(index("tools", i), raw)
		if kind := t.text("type"); kind != "function" {
			if kind == "" {
				t.bad("type", "is missing")
			}
			f.join(t)
			a.skipped = append(a.skipped, index("tools", i))
			continue
		}
		tool := readFunction(t, "parameters")
		f.join(t)
		names[tool.Function.Name] = true
		list = append(list, tool)
		a.Tools = append(a.Tools, raw)
	}
	single := f.boolean("parallel_tool_calls")
	a.ParallelToolCalls = single == nil || *single
	choice := readResponsesChoice(f, names)
	if raw := f.raw("tool_choice"); raw != nil {
		a.ToolChoice = raw
	}
	if f.err != nil {
		return nil, toolChoice{}
	}
	return chatTools(f, list, choice, !a.ParallelToolCalls)
}

// readResponsesChoice reads tool_choice into the chat's form.
func readResponsesChoice(f *fields, names map[string]bool) any {
	raw := f.raw("tool_choice")
	if raw == nil {
		return nil
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		if s != "auto" && s != "none" && s != "required" {
			f.bad("tool_choice", "%s: want auto, none, required or an object", short(raw))
		}
		return s
	}
	o := f.object("tool_choice")
	defer f.join(o)
	if kind := o.text("type"); kind != "function" {
		o.bad("type", "%q: want function", short([]byte(kind)))
		return nil
	}
	name := o.text("name")
	if !names[name] {
		o.bad("name", "there is no such tool")
	}
	return chosen(name)
}

// maxItems bounds the items of an input: a message may be several.
const maxItems = 4 * maxMessages

// readInput reads input: a text, or the items of a conversation.
func readInput(f *fields, instructions *string) []message {
	var t turns
	if instructions != nil && *instructions != "" {
		t.add("system", *instructions)
	}
	raw := f.raw("input")
	var text string
	if raw != nil && json.Unmarshal(raw, &text) == nil {
		t.add("user", text)
		return t.list
	}
	items := f.list("input", maxItems)
	if len(items) == 0 {
		f.bad("input", "want a text or a list of items")
		return nil
	}
	for i, item := range items {
		o := f.nested(index("input", i), item)
		readItem(o, &t)
		f.join(o)
		if f.err != nil {
			return nil
		}
	}
	return t.list
}

// readItem reads an item: those of the model's that follow each other are one message.
func readItem(o *fields, t *turns) {
	switch kind := o.text("type"); kind {
	case "", "message":
		readMessageItem(o, t)
	case "function_call":
		c := answer.Call{ID: o.text("call_id"), Name: o.text("name")}
		if c.Name == "" {
			o.bad("name", "is missing")
		}
		if o.has("arguments") {
			c.Arguments = o.text("arguments")
		}
		t.assistant().call(c)
	case "custom_tool_call": // of another server: here only functions are called
		input, _ := json.Marshal(map[string]string{"input": o.text("input")}) // a string: cannot fail
		c := answer.Call{ID: o.text("call_id"), Name: o.text("name"), Arguments: string(input)}
		if c.Name == "" {
			o.bad("name", "is missing")
		}
		t.assistant().call(c)
	case "function_call_output", "custom_tool_call_output":
		t.tool(o.text("call_id"), readContent(o, "output"))
	case "reasoning":
		text, summary := readReasoningTexts(o, "content", "reasoning_text"), readReasoningTexts(o, "summary", "summary_text")
		if text == "" {
			text = summary
		}
		m := t.assistant()
		if m.Content != "" || len(m.calls) > 0 {
			m = t.add("assistant", "")
		}
		m.think(text)
	case "item_reference":
		o.bad("type", "%q: nothing is kept between requests: want the item itself", kind)
	default:
		o.bad("type", "%q: want message, function_call, function_call_output or reasoning", short([]byte(kind)))
	}
}

func readMessageItem(o *fields, t *turns) {
	role := o.text("role")
	if !o.has("content") {
		o.bad("content", "is missing")
	}
	text := readContent(o, "content")
	switch role {
	case "developer", "system":
		if t.beginning() {
			t.join("system", text)
		} else {
			t.add("system", text)
		}
	case "user":
		t.add("user", text)
	case "assistant":
		m := t.assistant()
		if m.Content != "" && len(m.calls) == 0 {
			m = t.add("assistant", "")
		}
		m.Content += text
	default:
		o.bad("role", "%q: want user, assistant, system or developer", short([]byte(role)))
	}
}

// readReasoningTexts reads the texts of a list of parts of one type.
func readReasoningTexts(o *fields, name, kind string) (text string) {
	for i, raw := range o.list(name, maxMessages) {
		part := o.nested(index(name, i), raw)
		if given := part.text("type"); given != kind {
			part.bad("type", "%q: want %s", short([]byte(given)), kind)
		}
		text = joinLines(text, part.text("text"))
		o.join(part)
	}
	return text
}
