package clients

import (
	"encoding/json"
	"fmt"
	"strings"
)

// event is one of a stream: its name, where the API gives one, and its object.
type event struct {
	name string
	data object
}

// longest is how long a line may be: some clients read no more than 64 KiB. Steps of the
// decoder, which none of them asks for, may be longer.
const longest = 64 << 10

// readEvents reads a stream, strictly: lines of data and of names, comments, and an
// empty line after each event. It returns the bare text of a mark of the end, too.
func readEvents(stream string) (events []event, done bool, err error) {
	if !strings.HasSuffix(stream, "\n") {
		return nil, false, fmt.Errorf("the stream ends within a line: %.80q", stream[max(0, len(stream)-80):])
	}
	var e event
	open := false
	for line := range strings.SplitSeq(strings.TrimSuffix(stream, "\n"), "\n") {
		key, value, _ := strings.Cut(line, ": ")
		steps := strings.Contains(line, `"steps":[`)
		switch {
		case len(line) >= longest && !steps:
			return nil, false, fmt.Errorf("a line of %d bytes", len(line))
		case line == "":
			if !open {
				return nil, false, fmt.Errorf("an empty line without an event")
			}
			if e.data != nil {
				events = append(events, e)
			}
			e, open = event{}, false
		case strings.HasPrefix(line, ":"):
		case done:
			return nil, false, fmt.Errorf("%.80q after the mark of the end", line)
		case key == "event":
			e.name, open = value, true
		case key == "data" && value == "[DONE]":
			done, open = true, true
		case key == "data":
			if err := json.Unmarshal([]byte(value), &e.data); err != nil {
				return nil, false, fmt.Errorf("%w: %.200s", err, value)
			}
			open = true
		default:
			return nil, false, fmt.Errorf("line %.80q", line)
		}
	}
	if open {
		return nil, false, fmt.Errorf("the last event has no empty line after it")
	}
	return events, done, nil
}

// totals are what a stream says of its tokens.
type totals struct{ prompt, cached, completion int }

// wellFormed checks a stream's order and returns its usage.
func wellFormed(api, stream string) (u totals, err error) {
	events, done, err := readEvents(stream)
	if err != nil {
		return u, err
	}
	if done != (api == "chat") {
		return u, fmt.Errorf("[DONE]: %t", done)
	}
	switch api {
	case "chat":
		return chatStream(events)
	case "messages":
		return messagesStream(events)
	}
	return responsesStream(events)
}

// number is a whole number at a path; 0 where there is none.
func number(v any, path ...string) int {
	for _, p := range path {
		o, _ := v.(object)
		v = o[p]
	}
	f, _ := v.(float64)
	return int(f)
}

func chatStream(events []event) (u totals, err error) {
	var id any
	ended, usage := false, false
	for i, e := range events {
		list, ok := e.data["choices"].([]any)
		switch {
		case e.data["error"] != nil:
			return u, fmt.Errorf("an error: %v", e.data["error"])
		case e.data["object"] != "chat.completion.chunk", !ok:
			return u, fmt.Errorf("event %d: %v", i, e.data)
		case id != nil && e.data["id"] != id:
			return u, fmt.Errorf("event %d has another id", i)
		case len(list) == 0:
			if !ended || i != len(events)-1 {
				return u, fmt.Errorf("event %d of %d has no choices", i, len(events))
			}
			usage = true
			u = totals{number(e.data, "usage", "prompt_tokens"), number(e.data, "usage", "prompt_tokens_details", "cached_tokens"), number(e.data, "usage", "completion_tokens")}
			continue
		case ended:
			return u, fmt.Errorf("event %d after the finish reason", i)
		}
		id = e.data["id"]
		c := list[0].(object)
		if i == 0 && c["delta"].(object)["role"] != "assistant" {
			return u, fmt.Errorf("the first delta has no role: %v", c)
		}
		ended = c["finish_reason"] != nil
	}
	if !ended || !usage {
		return u, fmt.Errorf("finish reason %t, usage %t", ended, usage)
	}
	return u, nil
}

func messagesStream(events []event) (u totals, err error) {
	at, block, next := "", -1, 0
	for i, e := range events {
		kind, _ := e.data["type"].(string)
		if e.name != kind {
			return u, fmt.Errorf("event %d is named %q, its type is %q", i, e.name, kind)
		}
		wrong := false
		switch kind {
		case "ping":
			continue
		case "message_start":
			wrong = at != ""
			usage := []string{"message", "usage"}
			u.cached = number(e.data, append(usage, "cache_read_input_tokens")...)
			u.prompt = number(e.data, append(usage, "input_tokens")...) + u.cached + number(e.data, append(usage, "cache_creation_input_tokens")...)
		case "content_block_start":
			wrong = block >= 0 || number(e.data, "index") != next
			block, next = next, next+1
		case "content_block_delta":
			wrong = block < 0 || number(e.data, "index") != block
		case "content_block_stop":
			wrong = block < 0 || number(e.data, "index") != block
			block = -1
		case "message_delta":
			wrong = block >= 0 || e.data["delta"].(object)["stop_reason"] == nil
			u.completion = number(e.data, "usage", "output_tokens")
		case "message_stop":
			wrong = at != "message_delta" || i != len(events)-1
		default:
			wrong = true
		}
		if wrong {
			return u, fmt.Errorf("event %d, after %s: %v", i, at, e.data)
		}
		at = kind
	}
	if at != "message_stop" {
		return u, fmt.Errorf("it ends with %q", at)
	}
	return u, nil
}

func responsesStream(events []event) (u totals, err error) {
	open := map[string]int{}
	at := ""
	for i, e := range events {
		kind, _ := e.data["type"].(string)
		switch {
		case e.name != kind:
			return u, fmt.Errorf("event %d is named %q, its type is %q", i, e.name, kind)
		case number(e.data, "sequence_number") != i:
			return u, fmt.Errorf("event %d has number %d", i, number(e.data, "sequence_number"))
		case i == 0 && kind != "response.created", i == 1 && kind != "response.in_progress":
			return u, fmt.Errorf("event %d is %s", i, kind)
		}
		if what, ok := strings.CutSuffix(kind, ".added"); ok {
			open[what]++
		}
		if what, ok := strings.CutSuffix(kind, ".done"); ok && open[what] > 0 {
			open[what]--
		}
		at = kind
		if kind == "response.completed" || kind == "response.incomplete" {
			usage := []string{"response", "usage"}
			u = totals{number(e.data, append(usage, "input_tokens")...), number(e.data, append(usage, "input_tokens_details", "cached_tokens")...), number(e.data, append(usage, "output_tokens")...)}
		}
	}
	for what, n := range open {
		if n != 0 {
			return u, fmt.Errorf("%s: %d are not done", what, n)
		}
	}
	if at != "response.completed" && at != "response.incomplete" {
		return u, fmt.Errorf("it ends with %q", at)
	}
	return u, nil
}
