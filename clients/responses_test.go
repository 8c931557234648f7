package clients

import (
	"context"
	"errors"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
)

// sendResponsesGo asks by OpenAI's newer API.
func sendResponsesGo(ctx context.Context, client openai.Client, body object) (*result, error) {
	stream, _ := body["stream"].(bool)
	text, _ := body["input"].([]any)[0].(object)["content"].(string)
	delete(body, "stream")
	delete(body, "input")
	var params responses.ResponseNewParams
	if err := recode(body, &params); err != nil {
		return nil, err
	}
	params.Input.OfInputItemList = responses.ResponseInputParam{responses.ResponseInputItemParamOfMessage(text, responses.EasyInputMessageRoleUser)}
	if !stream {
		reply, err := client.Responses.New(ctx, params)
		if err != nil {
			return openaiError(err)
		}
		return responsesResult(reply), nil
	}
	events := client.Responses.NewStreaming(ctx, params)
	defer events.Close()
	r := new(result)
	var next int64
	var deltas strings.Builder
	gaps, nulls := 0, 0
	for events.Next() {
		e := events.Current()
		if e.SequenceNumber != next {
			gaps++
		}
		next = e.SequenceNumber + 1
		if raw := e.RawJSON(); strings.Contains(raw, `"content":null`) || strings.Contains(raw, `"output":null`) || strings.Contains(raw, `"annotations":null`) {
			nulls++
		}
		switch e := e.AsAny().(type) {
		case responses.ResponseTextDeltaEvent:
			deltas.WriteString(e.Delta)
		case responses.ResponseCompletedEvent:
			r = responsesResult(&e.Response)
			if e.Response.OutputText() != deltas.String() {
				r.Broken = "the whole text is not its deltas: " + deltas.String()
			}
		case responses.ResponseFailedEvent:
			r.Broken = e.Response.Error.Message
		case responses.ResponseErrorEvent:
			r.Broken = e.Message
		}
	}
	if err := events.Err(); err != nil {
		var refused *openai.Error
		if errors.As(err, &refused) {
			return openaiError(err)
		}
		r.Broken = err.Error()
	}
	r.Gaps, r.Nulls = gaps, nulls
	return r, nil
}

func responsesResult(reply *responses.Response) *result {
	x := newChoice(reply.OutputText(), "", string(reply.Status))
	for _, item := range reply.Output {
		if item.Type == "function_call" {
			x.Calls = append(x.Calls, call{item.CallID, item.Name, item.Arguments.OfString})
		}
	}
	u := reply.Usage
	return &result{
		Choices: []choice{x}, Blocks: len(reply.Output),
		Usage: object{"prompt": u.InputTokens, "completion": u.OutputTokens, "cached": u.InputTokensDetails.CachedTokens},
	}
}
