package clients

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// messagesBody makes a request of Anthropic's API of a case's, which is one of chat.
func messagesBody(c *detailCase) (object, error) {
	body := c.request()
	if c.API == "messages" {
		return body, nil
	}
	out := object{"max_tokens": 200}
	for _, key := range slices.Sorted(maps.Keys(body)) {
		v := body[key]
		if v == nil {
			return nil, &cannotSend{"null for what it has no name for"}
		}
		switch key {
		case "model", "temperature", "stream":
			out[key] = v
		case "max_tokens", "max_completion_tokens":
			out["max_tokens"] = v
		case "stop":
			if _, ok := v.([]any); !ok {
				return nil, &cannotSend{"stop as a string"}
			}
			out["stop_sequences"] = v
		case "stream_options": // the usage is there always
		case "reasoning_effort":
			if v == "none" {
				out["thinking"] = object{"type": "disabled"}
			}
		case "tool_choice":
			out[key] = object{"type": "any"} // as "required" is called
		case "tools":
			var tools []any
			for _, t := range v.([]any) {
				f := t.(object)["function"].(object)
				tools = append(tools, object{"name": f["name"], "description": f["description"], "input_schema": f["parameters"]})
			}
			out["tools"] = tools
		case "messages":
			list, err := messagesList(v.([]any))
			if err != nil {
				return nil, err
			}
			out["messages"] = list
		default:
			return nil, &cannotSend{key}
		}
	}
	return out, nil
}

func messagesList(list []any) (out []any, err error) {
	for _, item := range list {
		m := item.(object)
		content, role := m["content"], m["role"]
		if calls, ok := m["tool_calls"].([]any); ok {
			var blocks []any
			for _, t := range calls {
				f := t.(object)["function"].(object)
				var input any
				if json.Unmarshal([]byte(f["arguments"].(string)), &input) != nil {
					return nil, &cannotSend{"arguments that are no JSON"}
				}
				blocks = append(blocks, object{"type": "tool_use", "id": t.(object)["id"], "name": f["name"], "input": input})
			}
			content = blocks
		}
		if role == "tool" {
			role, content = "user", []any{object{"type": "tool_result", "tool_use_id": m["tool_call_id"], "content": content}}
		}
		if parts, ok := content.([]any); ok {
			parts = slices.Clone(parts)
			for i, p := range parts {
				if p.(object)["type"] == "image_url" {
					parts[i] = object{"type": "image", "source": object{"type": "base64", "media_type": "image/png", "data": "aaaa"}}
				}
			}
			content = parts
		} else if s, ok := content.(string); ok && len(out) > 0 && out[len(out)-1].(object)["role"] == role {
			// Turns of one role are one.
			last := out[len(out)-1].(object)
			last["content"] = append(last["content"].([]any), object{"type": "text", "text": s})
			continue
		}
		out = append(out, object{"role": role, "content": content})
	}
	return out, nil
}

func withoutV1(base string) string {
	slash := strings.HasSuffix(base, "/")
	base = strings.TrimSuffix(strings.TrimSuffix(base, "/"), "/v1")
	if slash {
		base += "/"
	}
	return base
}

func jsonOf(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // ours: cannot happen
	}
	return string(data)
}
