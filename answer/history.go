package answer

import (
	"encoding/json"
	"strings"
)

// TemplateArguments prepares the arguments of an earlier call for a chat
// template: the object if they are one, "{}" if they are empty or null, else a
// JSON string of their text, whatever it is. Templates go through an object's
// keys, and print a string as it is.
func TemplateArguments(arguments string) json.RawMessage {
	bare := strings.Trim(arguments, space)
	switch {
	case bare == "", bare == "null":
		return json.RawMessage("{}")
	case isObject(bare):
		return json.RawMessage(bare)
	}
	return appendString(nil, arguments)
}

// ToolCalls prepares the calls of an earlier message for a chat template that
// asks for this form: the message's content and its list of tool_calls, as
// tokenizer.Message has them.
//
// FormCoder's templates fail on arguments that are no object. If a call has
// such, all calls of the message become text at the end of its content, in
// their order, and there is no list.
func (f Form) ToolCalls(content string, calls []Call) (string, json.RawMessage) {
	if len(calls) == 0 {
		return content, nil
	}
	type function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	type toolCall struct {
		ID       string   `json:"id,omitempty"`
		Type     string   `json:"type"`
		Function function `json:"function"`
	}
	var list []toolCall
	asText := false
	for _, c := range calls {
		a := TemplateArguments(c.Arguments)
		asText = asText || f == FormCoder && !isObject(string(a))
		list = append(list, toolCall{c.ID, "function", function{c.Name, a}})
	}
	if asText {
		for _, c := range calls {
			if content != "" {
				content += "\n"
			}
			content += f.callText(c)
		}
		return content, nil
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(list) // strings and valid JSON: cannot fail
	return content, json.RawMessage(strings.TrimSuffix(b.String(), "\n"))
}

// callText is a FormCoder call as its template would write it; arguments that
// are no object stand as they are.
func (f Form) callText(c Call) string {
	s := f.Syntax()
	var b strings.Builder
	b.WriteString(f.Force(c.Name))
	if keys, values, ok := members(string(TemplateArguments(c.Arguments))); ok {
		for i, key := range keys {
			b.WriteString(s.Key + key + s.AfterKey + values[i] + s.AfterValue)
		}
	} else {
		b.WriteString(c.Arguments + "\n")
	}
	b.WriteString(s.AfterArguments + s.Close)
	return b.String()
}

// members lists an object's keys and the text of its values, in order.
func members(object string) (keys, values []string, ok bool) {
	if !isObject(object) {
		return nil, nil, false
	}
	d := json.NewDecoder(strings.NewReader(object))
	d.Token()
	for d.More() {
		key, _ := d.Token()
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, nil, false
		}
		var s string
		if json.Unmarshal(raw, &s) != nil || string(raw) == "null" {
			s = string(raw)
		}
		keys = append(keys, key.(string))
		values = append(values, s)
	}
	return keys, values, true
}
