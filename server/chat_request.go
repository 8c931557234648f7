package server

import (
	"encoding/json"

	"windrow/answer"
	"windrow/decoder"
	"windrow/tokenizer"
)

// chatRequest is a POST to /v1/chat/completions.
type chatRequest struct {
	params
	messages []message
	tools    json.RawMessage // as given; nil: none, or not to be used
	choice   toolChoice      // of these tools
	thinking *bool           // nil: the template's choice
	// thinkingBudget is after how many tokens reasoning is made to end; 0: never.
	thinkingBudget int
}

// checkConversation refuses what cannot be together.
func checkConversation(f *fields, r *chatRequest) {
	checkForm(f, &r.params)
	if r.tools != nil {
		checkHeld(f, &r.params, r.choice.binding())
	}
	if r.thinkingBudget > 0 && r.mode == decoder.WeDLM {
		f.bad("mode", "want ar or verified beside a budget of thinking: wedlm fills slots out of order")
	}
}

// maxToolName bounds a tool's name, in bytes.
const maxToolName = 256

// message is one of a conversation, before it is known how its model writes calls.
type message struct {
	tokenizer.Message
	calls []answer.Call
}

// readChat reads a conversation; what is wrong with it is the fields' error.
func readChat(f *fields) (r chatRequest) {
	r.params = readParams(f, 1)
	r.messages = readMessages(f)
	r.tools, r.choice = readTools(f)
	r.thinking = readThinking(f)
	r.steps = readSteps(f, r.stream)
	r.logprobs = readChatLogprobs(f)
	r.form = readForm(f)
	checkConversation(f, &r)
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
