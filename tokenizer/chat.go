package tokenizer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"windrow/jinja"
)

// Message is one message of a conversation, under the names that chat
// templates use.
type Message struct {
	Role    string // "system", "user", "assistant", "tool"
	Content string
	// ReasoningContent is an assistant's thinking, for templates that take it
	// apart from the content. "": not given.
	ReasoningContent string
	// ToolCalls is a JSON list of calls, passed on with its keys in order:
	// [{"type": "function", "function": {"name": …, "arguments": {…}}}].
	ToolCalls json.RawMessage
	// Name and ToolCallID are passed on where they are not empty.
	Name, ToolCallID string
}

// ChatOptions say how a conversation is rendered.
type ChatOptions struct {
	// AddGenerationPrompt ends the text where the assistant's answer begins.
	AddGenerationPrompt bool
	// EnableThinking is Qwen3's switch; nil leaves it to the template.
	EnableThinking *bool
	// Tools is a JSON list of function descriptions, passed on with its keys
	// in order. nil: none.
	Tools json.RawMessage
	// Variables are further variables of the template, as JSON. The standard
	// ones (messages, tools, …) go before them.
	Variables map[string]json.RawMessage
}

// ErrNoChatTemplate is returned by RenderChat for a model without a template.
var ErrNoChatTemplate = errors.New("the model has no chat template: neither chat_template in tokenizer_config.json nor chat_template.jinja")

// HasChatTemplate reports whether the model came with a chat template.
func (t *Tokenizer) HasChatTemplate() bool { return t.template.source != "" }

// ChatTemplate returns the source of the model's chat template, or "".
func (t *Tokenizer) ChatTemplate() string { return t.template.source }

// RenderChat renders a conversation with the model's chat template, as
// transformers' apply_chat_template does; Encode turns the text into ids.
// It fails with [ErrNoChatTemplate] where there is no template, with the
// template's own message where it raises one, after two seconds, and with ctx's
// error when ctx is done before.
//
// The text of messages goes in as it is: "<|im_end|>" in a user's message will
// end the turn once encoded. Programs that take text from strangers should
// encode with [Tokenizer.EncodeChat].
func (t *Tokenizer) RenderChat(ctx context.Context, messages []Message, o ChatOptions) (string, error) {
	return t.renderChat(ctx, messages, o, func(s string) string { return s })
}

// EncodeChat renders a conversation and returns its ids. Special tokens come
// only from the template: their text in messages, tools and variables is
// encoded as ordinary text, so that no message can end its own turn or begin
// another's. For messages without such text the ids are those of
// Encode(RenderChat(…)). It fails as RenderChat does.
func (t *Tokenizer) EncodeChat(ctx context.Context, messages []Message, o ChatOptions) ([]int32, error) {
	text, err := t.renderChat(ctx, messages, o, t.guardSpecial)
	if err != nil {
		return nil, err
	}
	return t.encode(text, true, true)
}

// renderChat renders; each text of the caller's goes through onText first.
func (t *Tokenizer) renderChat(ctx context.Context, messages []Message, o ChatOptions, onText func(string) string) (string, error) {
	if !t.HasChatTemplate() {
		return "", ErrNoChatTemplate
	}
	given := 0
	variables, err := t.chatVariables(messages, o, func(s string) string {
		s = onText(s)
		given += len(s)
		return s
	})
	if err != nil {
		return "", err
	}
	return t.template.render(ctx, variables, given)
}

// chatVariables are the variables that transformers gives to a template.
func (t *Tokenizer) chatVariables(messages []Message, o ChatOptions, onText func(string) string) (map[string]any, error) {
	variables := make(map[string]any)
	for name, raw := range o.Variables {
		v, err := jinja.FromJSON(raw, onText)
		if err != nil {
			return nil, fmt.Errorf("template variable %q: %w", name, err)
		}
		variables[name] = v
	}
	all := make([]any, len(messages))
	for i, m := range messages {
		d, err := m.dict(onText)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i+1, err)
		}
		all[i] = d
	}
	tools, err := jinja.FromJSON(o.Tools, onText)
	if err != nil {
		return nil, fmt.Errorf("tools: %w", err)
	}
	if _, isList := tools.([]any); tools != nil && !isList {
		return nil, errors.New("tools: a JSON list is expected")
	}
	variables["messages"] = all
	variables["tools"] = tools
	variables["documents"] = nil
	variables["add_generation_prompt"] = o.AddGenerationPrompt
	if o.EnableThinking != nil {
		variables["enable_thinking"] = *o.EnableThinking
	}
	for name, token := range map[string]string{"bos_token": t.config.bos, "eos_token": t.config.eos, "pad_token": t.config.pad, "unk_token": t.config.unknown} {
		if token != "" {
			variables[name] = token
		}
	}
	return variables, nil
}

// dict is the message as a template sees it.
func (m Message) dict(onText func(string) string) (*jinja.Dict, error) {
	d := &jinja.Dict{}
	set := d.Set
	set("role", onText(m.Role))
	set("content", onText(m.Content))
	if m.ReasoningContent != "" {
		set("reasoning_content", onText(m.ReasoningContent))
	}
	calls, err := jinja.FromJSON(m.ToolCalls, onText)
	if err != nil {
		return nil, fmt.Errorf("tool calls: %w", err)
	}
	if calls != nil {
		set("tool_calls", calls)
	}
	if m.Name != "" {
		set("name", onText(m.Name))
	}
	if m.ToolCallID != "" {
		set("tool_call_id", onText(m.ToolCallID))
	}
	return d, nil
}
