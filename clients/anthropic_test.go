package clients

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

// anthropicGo is Anthropic's own client for Go. Its base URL has no /v1.
func anthropicGo() *adapter {
	return &adapter{name: "anthropic-sdk-go", api: "messages", send: sendAnthropicGo}
}

func sendAnthropicGo(ctx context.Context, base string, c *detailCase) (*result, error) {
	body, err := messagesBody(c)
	if err != nil {
		return nil, err
	}
	secret := c.Key
	if secret == "" {
		secret = "any"
	}
	client := anthropic.NewClient(option.WithBaseURL(withoutV1(base)), option.WithAPIKey(secret), option.WithMaxRetries(c.Retries))
	var more []option.RequestOption
	for key, v := range body {
		if v == nil {
			more = append(more, option.WithJSONSet(key, nil))
			delete(body, key)
		}
	}
	stream, _ := body["stream"].(bool)
	delete(body, "stream")
	var params anthropic.MessageNewParams
	if err := recode(body, &params); err != nil {
		return nil, err
	}
	if !stream {
		reply, err := client.Messages.New(ctx, params, more...)
		if err != nil {
			return anthropicError(err)
		}
		return anthropicResult(reply), nil
	}
	events := client.Messages.NewStreaming(ctx, params, more...)
	defer events.Close()
	var all anthropic.Message
	var ends int
	var begun int64
	for events.Next() {
		e := events.Current()
		if err := all.Accumulate(e); err != nil {
			return &result{Broken: err.Error()}, nil
		}
		if e.Type == "message_start" {
			begun = e.Message.Usage.InputTokens + e.Message.Usage.CacheReadInputTokens
		}
		if e.Delta.StopReason != "" {
			ends++
		}
	}
	if err := events.Err(); err != nil {
		var refused *anthropic.Error
		if errors.As(err, &refused) && refused.StatusCode != 200 {
			return anthropicError(err)
		}
		return &result{Broken: err.Error()}, nil
	}
	r := anthropicResult(&all)
	r.Ends, r.Begun = ends, begun
	return r, nil
}

func anthropicResult(m *anthropic.Message) *result {
	finish := map[anthropic.StopReason]string{"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls"}[m.StopReason]
	var content, reasoning string
	var calls []call
	for _, b := range m.Content {
		switch b.Type {
		case "text":
			content += b.Text
		case "thinking":
			reasoning += b.Thinking
		case "tool_use":
			calls = append(calls, call{b.ID, b.Name, spaced(b.Input)})
		}
	}
	x := newChoice(content, reasoning, finish, calls...)
	x.Refusal = unseen
	u := m.Usage
	return &result{
		Choices: []choice{x}, IDs: 1, Blocks: len(m.Content),
		Usage: object{"prompt": u.InputTokens + u.CacheReadInputTokens, "completion": u.OutputTokens, "cached": u.CacheReadInputTokens},
	}
}

// spaced is JSON with a space after each colon, as scripts write it.
func spaced(raw json.RawMessage) string {
	var v map[string]int
	if json.Unmarshal(raw, &v) != nil || len(v) != 1 {
		return string(raw)
	}
	for key, n := range v {
		return `{"` + key + `": ` + jsonOf(n) + "}"
	}
	return ""
}

func anthropicError(err error) (*result, error) {
	var refused *anthropic.Error
	if !errors.As(err, &refused) {
		return &result{Broken: err.Error()}, nil
	}
	var said struct {
		Error struct{ Type, Message string }
	}
	json.Unmarshal([]byte(refused.RawJSON()), &said)
	return &result{Error: object{"status": refused.StatusCode, "type": said.Error.Type, "message": said.Error.Message, "code": unseen, "param": unseen}}, nil
}
