package clients

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// openaiGo is OpenAI's own client for Go.
func openaiGo() *adapter {
	return &adapter{name: "openai-go", api: "chat", also: []string{"responses"}, send: sendOpenAIGo}
}

func openaiClient(base string, c *detailCase) openai.Client {
	secret := c.Key
	if secret == "" {
		secret = "any"
	}
	return openai.NewClient(option.WithBaseURL(base), option.WithAPIKey(secret), option.WithMaxRetries(c.Retries))
}

func sendOpenAIGo(ctx context.Context, base string, c *detailCase) (*result, error) {
	client := openaiClient(base, c)
	if c.API == "responses" {
		return sendResponsesGo(ctx, client, c.request())
	}
	body := c.request()
	var more []option.RequestOption
	for key, v := range body {
		// What the types have no place for: null, and fields of other servers.
		if v == nil || key == "chat_template_kwargs" {
			more = append(more, option.WithJSONSet(key, v))
			delete(body, key)
		}
	}
	stream, _ := body["stream"].(bool)
	delete(body, "stream")
	var params openai.ChatCompletionNewParams
	if err := recode(body, &params); err != nil {
		return nil, err
	}
	if stream {
		return streamOpenAIGo(ctx, client, params, more)
	}
	reply, err := client.Chat.Completions.New(ctx, params, more...)
	if err != nil {
		return openaiError(err)
	}
	r := new(result)
	for _, c := range reply.Choices {
		x := openaiChoice(c)
		x.Reasoning = extra(c.Message.JSON.ExtraFields["reasoning_content"].Raw())
		if c.Message.JSON.Content.Raw() == `""` {
			x.Content = ""
		}
		if c.Message.JSON.Refusal.Raw() == `""` {
			x.Refusal = ""
		}
		r.Choices = append(r.Choices, x)
	}
	r.Usage = openaiUsage(reply.Usage)
	return r, nil
}

func streamOpenAIGo(ctx context.Context, client openai.Client, params openai.ChatCompletionNewParams, more []option.RequestOption) (*result, error) {
	stream := client.Chat.Completions.NewStreaming(ctx, params, more...)
	defer stream.Close()
	var all openai.ChatCompletionAccumulator
	r, ids, ends := new(result), map[string]bool{}, 0
	reasoning := map[int64]string{}
	for stream.Next() {
		chunk := stream.Current()
		ids[chunk.ID] = true
		if !all.AddChunk(chunk) {
			r.Broken = "the accumulator refused a chunk"
			return r, nil
		}
		for _, c := range chunk.Choices {
			if s, ok := extra(c.Delta.JSON.ExtraFields["reasoning_content"].Raw()).(string); ok {
				reasoning[c.Index] += s
			}
			if c.FinishReason != "" {
				ends++
			}
		}
	}
	if err := stream.Err(); err != nil {
		var refused *openai.Error
		if errors.As(err, &refused) {
			return openaiError(err)
		}
		r.Broken = err.Error()
		return r, nil
	}
	for i, c := range all.Choices {
		x := openaiChoice(c)
		x.Reasoning = orNil(reasoning[int64(i)])
		r.Choices = append(r.Choices, x)
	}
	r.Usage, r.IDs, r.Ends = openaiUsage(all.Usage), len(ids), ends
	return r, nil
}

func openaiChoice(c openai.ChatCompletionChoice) choice {
	x := newChoice(c.Message.Content, "", c.FinishReason)
	for _, t := range c.Message.ToolCalls {
		x.Calls = append(x.Calls, call{t.ID, t.Function.Name, t.Function.Arguments})
	}
	return x
}

func openaiUsage(u openai.CompletionUsage) any {
	if u.TotalTokens == 0 {
		return nil
	}
	return object{"prompt": u.PromptTokens, "completion": u.CompletionTokens, "cached": u.PromptTokensDetails.CachedTokens}
}

func openaiError(err error) (*result, error) {
	var refused *openai.Error
	if !errors.As(err, &refused) {
		return &result{Broken: err.Error()}, nil
	}
	return &result{Error: object{"status": refused.StatusCode, "code": refused.Code, "type": refused.Type, "param": refused.Param, "message": refused.Message}}, nil
}

// extra is a string that a type has no place for; nil: none.
func extra(raw string) any {
	var s string
	if json.Unmarshal([]byte(raw), &s) != nil || s == "" {
		return nil
	}
	return s
}

// recode makes one form of a value of another, by way of JSON.
func recode(from, to any) error {
	data, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, to)
}

func decode(r io.Reader, v any) error { return json.NewDecoder(r).Decode(v) }
