package clients

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// spoilRequest breaks what a detail says of requests: it takes away what the client
// asked for, or refuses (the status) what the server should take.
func spoilRequest(number int, x *exchange) int {
	drop := func(names ...string) {
		for _, name := range names {
			delete(x.body, name)
		}
	}
	messages, _ := x.body["messages"].([]any)
	switch number {
	case 20:
		for _, m := range messages {
			if m := m.(object); m["role"] == "tool" && m["name"] == nil || m["role"] == "assistant" && m["content"] == nil {
				return http.StatusBadRequest
			}
		}
		for _, part := range parts(messages) {
			if part["type"] == "tool_result" {
				return http.StatusBadRequest
			}
		}
	case 21: // only texts are there, and the first of the parts is lost
		for _, m := range messages {
			if list, ok := m.(object)["content"].([]any); ok {
				if len(list) > 1 && list[len(list)-1].(object)["type"] == "text" {
					list = list[:1]
				}
				m.(object)["content"] = slices.DeleteFunc(list, func(p any) bool { return p.(object)["type"] != "text" })
			}
		}
	case 22:
		for _, m := range messages {
			calls, _ := m.(object)["tool_calls"].([]any)
			for _, c := range calls {
				f, _ := c.(object)["function"].(object)
				if arguments, ok := f["arguments"].(string); ok && !json.Valid([]byte(arguments)) {
					return http.StatusBadRequest
				}
			}
		}
	case 23:
		drop("max_completion_tokens", "max_tokens")
	case 24:
		drop("stop", "stop_sequences")
	case 25:
		for _, v := range x.body {
			if v == nil {
				return http.StatusBadRequest
			}
		}
	case 26:
		x.body["temperature"], x.body["max_tokens"] = 3, 40
		drop("seed")
	case 27:
		drop("model")
	case 28:
		switch x.header.Get("Authorization") + x.header.Get("X-Api-Key") {
		case "Bearer another-key", "another-key":
			x.header.Set("Authorization", "Bearer "+key)
		default:
			return http.StatusUnauthorized
		}
	case 29:
		if strings.Contains(x.path, "//") || strings.HasSuffix(x.path, "/") {
			return http.StatusNotFound
		}
	case 38:
		for _, m := range messages {
			if m.(object)["role"] == "system" {
				return http.StatusBadRequest
			}
		}
	case 34, 35, 36:
		drop("response_format")
	}
	return 0
}

// parts are all parts of messages.
func parts(messages []any) (list []object) {
	for _, m := range messages {
		content, _ := m.(object)["content"].([]any)
		for _, p := range content {
			list = append(list, p.(object))
		}
	}
	return list
}

// spoilReply breaks what a detail says of replies.
func spoilReply(number int, x *exchange) {
	switch number {
	case 1:
		x.choices(func(c, _ object) { delete(c, "index") })
	case 2:
		x.choices(func(_, said object) {
			for _, name := range []string{"tool_calls", "role"} {
				if said[name] == nil {
					said[name] = nil
				}
			}
		})
	case 3:
		x.calls(func(call, _ object) { call["index"] = 0 })
	case 4:
		x.calls(func(call, f object) {
			call["id"], call["type"], f["name"] = "call_repeated", "function", "add"
		})
		x.objects(func(o object) {
			if b, ok := o["content_block"].(object); ok && b["id"] != nil {
				b["id"] = "toolu_repeated"
			}
		})
	case 5:
		x.calls(func(_, f object) {
			if f["arguments"] == "{}" {
				f["arguments"] = ""
			}
		})
	case 6, 7:
		other := map[any]any{"tool_calls": "stop", "length": "tool_calls", "tool_use": "end_turn", "max_tokens": "tool_use"}
		x.objects(func(o object) {
			if d, ok := o["delta"].(object); ok && d["stop_reason"] != nil {
				d["stop_reason"] = other[d["stop_reason"]]
			}
			if o["stop_reason"] != nil {
				o["stop_reason"] = other[o["stop_reason"]]
			}
		})
		x.choices(func(c, _ object) {
			if to := other[c["finish_reason"]]; to != nil {
				c["finish_reason"] = to
			}
		})
	case 8:
		x.choices(func(c, _ object) { c["finish_reason"] = "stop" })
	case 9:
		x.choices(func(_, said object) { said["content"], said["refusal"] = "", "" })
	case 10:
		x.lines(func(line string) string {
			if line != "data: [DONE]\n" {
				return line
			}
			return `data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"scripted","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}` + "\n\n" + line
		})
		x.objects(func(o object) { o["id"], o["created"], o["system_fingerprint"] = "x", 1, "fp" })
	case 11:
		x.objects(func(o object) {
			if list, ok := o["choices"].([]any); ok && len(list) == 0 {
				delete(o, "choices")
			}
		})
	case 12: // the mark of the end before the last event, and again after it
		events := strings.SplitAfter(string(x.reply), "\n\n")
		at := slices.Index(events, "data: [DONE]\n\n")
		if at > 1 {
			events = slices.Insert(events, at-1, events[at])
		}
		x.reply = []byte(strings.Join(events, ""))
	case 13:
		n := 0
		x.objects(func(o object) {
			n++
			o["id"], o["created"], o["model"] = "chatcmpl-"+strconv.Itoa(n), n, "model-"+strconv.Itoa(n)
		})
	case 14:
		x.type_ = "text/plain"
	case 15: // a line of more than 1 MiB
		x.reply = []byte(strings.Replace(string(x.reply), "data: {", "data: {"+strings.Repeat(" ", 1<<20), 1))
	case 16:
		x.lines(func(line string) string {
			if line == ": ping\n" {
				return line + "\n"
			}
			return line
		})
	case 17:
		x.reply = []byte(strings.ReplaceAll(string(x.reply), "😀", "\ufffd\ufffd"))
	case 18:
		x.choices(func(c, said object) {
			if s, _ := said["content"].(string); s != "" {
				said["content"] = ""
			}
		})
		x.objects(func(o object) {
			if d, ok := o["delta"].(object); ok && d["text"] != nil {
				d["text"] = ""
			}
		})
	case 19:
		cut := func(o object, key string) {
			if s, _ := o[key].(string); s != "" && s != "{}" {
				o[key] = s[:len(s)-1]
			}
		}
		x.calls(func(_, f object) { cut(f, "arguments") })
		x.objects(func(o object) {
			if d, ok := o["delta"].(object); ok {
				cut(d, "partial_json")
			}
		})
	case 30:
		if x.status == http.StatusBadRequest {
			x.status, x.type_ = http.StatusOK, "text/event-stream"
			x.reply = []byte("data: " + strings.TrimSpace(string(x.reply)) + "\n\n")
		}
	case 31:
		x.out.Del("Retry-After")
	case 32:
		x.lines(func(line string) string {
			if strings.HasPrefix(line, `data: {"error"`) {
				return "data: [DONE]\n"
			}
			if strings.HasPrefix(line, "event: error") || strings.HasPrefix(line, `data: {"type":"error"`) {
				return "\n"
			}
			return line
		})
	case 33:
		x.choices(func(_, said object) {
			if s, _ := said["content"].(string); s != "" {
				said["reasoning_content"] = s
			} else if s, _ := said["reasoning_content"].(string); s != "" {
				said["content"] = s
			}
		})
		x.objects(func(o object) {
			list, _ := o["content"].([]any)
			for _, item := range list {
				switch b := item.(object); b["type"] {
				case "text":
					b["type"], b["thinking"], b["signature"] = "thinking", b["text"], "x"
				case "thinking":
					b["type"], b["text"] = "text", b["thinking"]
				}
			}
		})
	case 37:
		x.lines(func(line string) string {
			line = strings.ReplaceAll(line, `"content":[]`, `"content":null`)
			return strings.ReplaceAll(line, `"output":[]`, `"output":null`)
		})
		x.objects(func(o object) {
			if n, ok := o["sequence_number"].(float64); ok {
				o["sequence_number"] = 2 * n
			}
			delete(o, "output")
		})
	case 39:
		x.objects(func(o object) {
			if m, ok := o["message"].(object); ok {
				delete(m, "usage")
			}
			if n, ok := o["index"].(float64); ok && n > 0 {
				o["index"] = n + 1
			}
		})
	}
}
