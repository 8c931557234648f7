package clients

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/tmc/langchaingo/llms"
	"github.com/tmc/langchaingo/llms/openai"
)

// langchainGo is LangChain for Go, with its model of OpenAI's API.
func langchainGo() *adapter {
	return &adapter{name: "langchaingo", api: "chat", send: sendLangchainGo}
}

func sendLangchainGo(ctx context.Context, base string, c *detailCase) (*result, error) {
	if c.Retries > 0 {
		return nil, &cannotSend{"a request again"}
	}
	body := c.request()
	secret := c.Key
	if secret == "" {
		secret = "any" // it refuses to go without
	}
	settings := []openai.Option{openai.WithBaseURL(base), openai.WithToken(secret), openai.WithModel(body["model"].(string))}
	var options []llms.CallOption
	streamed := body["stream"] == true
	var usage any
	for _, key := range slices.Sorted(maps.Keys(body)) {
		v := body[key]
		if v == nil {
			return nil, &cannotSend{"null"}
		}
		switch key {
		case "model", "messages":
		case "stream_options": // it asks for the usage always
		case "stream":
			if body["stream_options"] == nil {
				usage = unseen
			}
			options = append(options, llms.WithStreamingFunc(func(context.Context, []byte) error { return nil }))
		case "n":
			if streamed {
				return nil, &cannotSend{"n beside stream: it reads one choice"}
			}
			options = append(options, llms.WithN(int(v.(float64))))
		case "temperature":
			options = append(options, llms.WithTemperature(v.(float64)))
		case "max_completion_tokens":
			options = append(options, llms.WithMaxTokens(int(v.(float64))))
		case "max_tokens":
			options = append(options, llms.WithMaxTokens(int(v.(float64))), llms.WithMetadata(map[string]any{"openai:use_legacy_max_tokens": true}))
		case "stop":
			list, ok := v.([]any)
			if !ok {
				return nil, &cannotSend{"stop as a string"}
			}
			words := []string{}
			for _, w := range list {
				words = append(words, w.(string))
			}
			options = append(options, llms.WithStopWords(words))
		case "tools":
			var tools []llms.Tool
			if err := recode(v, &tools); err != nil {
				return nil, err
			}
			options = append(options, llms.WithTools(tools))
		case "tool_choice":
			options = append(options, llms.WithToolChoice(v))
		case "response_format":
			if v.(object)["type"] == "json_object" {
				options = append(options, llms.WithJSONMode())
				break
			}
			if c.Detail == 36 {
				return nil, &cannotSend{"a schema with other keywords"}
			}
			format := new(openai.ResponseFormat)
			if err := recode(v, format); err != nil {
				return nil, err
			}
			settings = append(settings, openai.WithResponseFormat(format))
		default:
			return nil, &cannotSend{key}
		}
	}
	messages, err := langchainMessages(body["messages"].([]any))
	if err != nil {
		return nil, err
	}
	model, err := openai.New(settings...)
	if err != nil {
		return nil, err
	}
	reply, err := model.GenerateContent(ctx, messages, options...)
	if err != nil {
		return langchainError(err)
	}
	r := &result{Ends: unseen, IDs: unseen}
	for _, c := range reply.Choices {
		x := newChoice(c.Content, c.ReasoningContent, c.StopReason)
		for _, t := range c.ToolCalls {
			x.Calls = append(x.Calls, call{t.ID, t.FunctionCall.Name, t.FunctionCall.Arguments})
		}
		r.Choices = append(r.Choices, x)
		r.Usage = object{"prompt": c.GenerationInfo["PromptTokens"], "completion": c.GenerationInfo["CompletionTokens"], "cached": c.GenerationInfo["PromptCachedTokens"]}
	}
	if usage != nil {
		r.Usage = usage // it asks for it always
	}
	if streamed {
		r.Broken = unseen // it passes over an event without choices
	}
	return r, nil
}

func langchainMessages(list []any) (messages []llms.MessageContent, err error) {
	roles := map[string]llms.ChatMessageType{"system": llms.ChatMessageTypeSystem, "user": llms.ChatMessageTypeHuman, "assistant": llms.ChatMessageTypeAI, "tool": llms.ChatMessageTypeTool}
	for _, item := range list {
		m := item.(object)
		out := llms.MessageContent{Role: roles[m["role"].(string)]}
		calls, _ := m["tool_calls"].([]any)
		for _, t := range calls {
			x, f := t.(object), t.(object)["function"].(object)
			out.Parts = append(out.Parts, llms.ToolCall{ID: x["id"].(string), Type: "function", FunctionCall: &llms.FunctionCall{Name: f["name"].(string), Arguments: f["arguments"].(string)}})
		}
		switch content := m["content"].(type) {
		case string:
			if m["role"] == "tool" {
				out.Parts = append(out.Parts, llms.ToolCallResponse{ToolCallID: m["tool_call_id"].(string), Content: content})
			} else {
				out.Parts = append(out.Parts, llms.TextContent{Text: content})
			}
		case []any:
			if m["role"] == "tool" {
				return nil, &cannotSend{"a tool's result in parts"}
			}
			for _, p := range content {
				if p := p.(object); p["type"] == "text" {
					out.Parts = append(out.Parts, llms.TextContent{Text: p["text"].(string)})
				} else {
					out.Parts = append(out.Parts, llms.ImageURLContent{URL: p["image_url"].(object)["url"].(string)})
				}
			}
		}
		messages = append(messages, out)
	}
	return messages, nil
}

var langchainStatus = regexp.MustCompile(`status code: (\d+)`)

// langchainError reads an error's text, which is all that there is of it.
func langchainError(err error) (*result, error) {
	found := langchainStatus.FindStringSubmatch(err.Error())
	if found == nil {
		return &result{Broken: err.Error()}, nil
	}
	status, _ := strconv.Atoi(found[1])
	return &result{Error: object{"status": status, "message": fmt.Sprint(err), "code": unseen, "type": unseen, "param": unseen}}, nil
}
