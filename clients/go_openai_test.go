package clients

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	openai "github.com/sashabaranov/go-openai"
)

// goOpenAI is the client that many Go programs had before there was OpenAI's own.
func goOpenAI() *adapter {
	return &adapter{name: "go-openai", api: "chat", send: sendGoOpenAI}
}

func sendGoOpenAI(ctx context.Context, base string, c *detailCase) (*result, error) {
	if c.Retries > 0 {
		return nil, &cannotSend{"a request again"}
	}
	body := c.request()
	stream, _ := body["stream"].(bool)
	if stop, ok := body["stop"].(string); ok && stop != "" {
		return nil, &cannotSend{"stop as a string"}
	}
	var request openai.ChatCompletionRequest
	if err := recode(body, &request); err != nil {
		return nil, err
	}
	// Its types leave out what is zero.
	var sent object
	if err := recode(request, &sent); err != nil {
		return nil, err
	}
	for key, v := range body {
		_, ok := sent[key]
		switch {
		case ok, key == "temperature" && c.Detail != 26: // the model is greedy by itself
		case v == nil:
			return nil, &cannotSend{"null"}
		default:
			return nil, &cannotSend{fmt.Sprintf("%s: %v", key, v)}
		}
	}
	config := openai.DefaultConfig(c.Key)
	config.BaseURL = base
	client := openai.NewClientWithConfig(config)
	if stream {
		return streamGoOpenAI(ctx, client, request)
	}
	reply, err := client.CreateChatCompletion(ctx, request)
	if err != nil {
		return goOpenAIError(err)
	}
	r := new(result)
	for _, c := range reply.Choices {
		m := c.Message
		x := newChoice(m.Content, m.ReasoningContent, string(c.FinishReason), goOpenAICalls(m.ToolCalls)...)
		r.Choices = append(r.Choices, x)
	}
	r.Usage = goOpenAIUsage(&reply.Usage)
	return r, nil
}

func streamGoOpenAI(ctx context.Context, client *openai.Client, request openai.ChatCompletionRequest) (*result, error) {
	stream, err := client.CreateChatCompletionStream(ctx, request)
	if err != nil {
		return goOpenAIError(err)
	}
	defer stream.Close()
	r, ids, ends := new(result), map[string]bool{}, 0
	type part struct {
		content, reasoning strings.Builder
		finish             string
		calls              []openai.ToolCall
	}
	var list []*part
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			r.Broken = err.Error()
			return r, nil
		}
		ids[chunk.ID] = true
		if chunk.Usage != nil {
			r.Usage = goOpenAIUsage(chunk.Usage)
		}
		for _, c := range chunk.Choices {
			for len(list) <= c.Index {
				list = append(list, new(part))
			}
			p := list[c.Index]
			p.content.WriteString(c.Delta.Content)
			p.reasoning.WriteString(c.Delta.ReasoningContent)
			for _, t := range c.Delta.ToolCalls {
				at := *t.Index
				for len(p.calls) <= at {
					p.calls = append(p.calls, openai.ToolCall{})
				}
				p.calls[at].ID += t.ID
				p.calls[at].Function.Name += t.Function.Name
				p.calls[at].Function.Arguments += t.Function.Arguments
			}
			if c.FinishReason != "" {
				p.finish = string(c.FinishReason)
				ends++
			}
		}
	}
	for _, p := range list {
		r.Choices = append(r.Choices, newChoice(p.content.String(), p.reasoning.String(), p.finish, goOpenAICalls(p.calls)...))
	}
	r.IDs, r.Ends = len(ids), ends
	return r, nil
}

func goOpenAICalls(list []openai.ToolCall) (calls []call) {
	for _, t := range list {
		calls = append(calls, call{t.ID, t.Function.Name, t.Function.Arguments})
	}
	return calls
}

func goOpenAIUsage(u *openai.Usage) any {
	if u.TotalTokens == 0 {
		return nil
	}
	return object{"prompt": u.PromptTokens, "completion": u.CompletionTokens}
}

func goOpenAIError(err error) (*result, error) {
	var refused *openai.APIError
	if !errors.As(err, &refused) {
		return &result{Broken: err.Error()}, nil
	}
	param := ""
	if refused.Param != nil {
		param = *refused.Param
	}
	return &result{Error: object{"status": refused.HTTPStatusCode, "code": refused.Code, "type": refused.Type, "param": param, "message": refused.Message}}, nil
}
