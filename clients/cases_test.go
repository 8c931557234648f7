package clients

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// object is a JSON object.
type object = map[string]any

// detailCase is one request, and what a client must make of its reply. npm's clients
// read the same file.
type detailCase struct {
	Detail  int     `json:"detail"`
	Server  string  `json:"server"`
	API     string  `json:"api"`     // "chat", "responses" or "messages", whose body it is; "": chat's, for every client
	Op      string  `json:"op"`      // "leave": goes after the first chunk; "": reads the reply
	Body    object  `json:"body"`    // each client makes its own request of it
	Script  *script `json:"script"`  // goes to the end of the last message
	Want    object  `json:"want"`    // see match
	Key     string  `json:"key"`     // the API key
	Slash   bool    `json:"slash"`   // the base URL ends in one
	Retries int     `json:"retries"` // how often the client may try again
	Twice   bool    `json:"twice"`   // the answer is the same again
}

// details are testdata/details.json.
type details struct {
	What  map[int]string `json:"what"`
	Cases []*detailCase  `json:"cases"`
}

func readDetails() (*details, error) {
	data, err := os.ReadFile("testdata/details.json")
	if err != nil {
		return nil, err
	}
	d := new(details)
	return d, json.Unmarshal(data, d)
}

// modelOf is what a server calls its model.
var modelOf = map[string]string{"binary": "tiny-gsm", "locked": "tiny-gsm", "tools": "tiny-tools", "scripted": "scripted"}

// request is a case's body, complete.
func (c *detailCase) request() object {
	body := maps.Clone(c.Body)
	if body["model"] == nil {
		body["model"] = modelOf[c.Server]
	}
	if c.Script == nil {
		return body
	}
	data, err := json.Marshal(c.Script)
	if err != nil {
		panic(err) // ours: cannot happen
	}
	text := scriptMark + strings.ReplaceAll(string(data), "$RUN", fmt.Sprint(rand.Uint64()))
	if c.API == "responses" {
		body["input"] = []any{object{"role": "user", "content": text}}
		return body
	}
	messages, _ := body["messages"].([]any)
	if len(messages) == 0 {
		body["messages"] = []any{object{"role": "user", "content": text}}
		return body
	}
	messages = slices.Clone(messages)
	last := maps.Clone(messages[len(messages)-1].(object))
	if parts, ok := last["content"].([]any); ok {
		parts = slices.Clone(parts)
		parts[len(parts)-1] = object{"type": "text", "text": text}
		last["content"] = parts
	} else {
		last["content"] = text
	}
	messages[len(messages)-1] = last
	body["messages"] = messages
	return body
}

// cannotSend is why a client does not come to ask.
type cannotSend struct{ what string }

func (e *cannotSend) Error() string { return "it cannot send " + e.what }

// errUnsent reports whether a client could not send a request, and what of it.
func errUnsent(err error) (string, bool) {
	var e *cannotSend
	if errors.As(err, &e) {
		return e.what, true
	}
	return "", false
}

// unseen is in the place of what a client does not show: it is as good as any.
const unseen = "?"

var callID = regexp.MustCompile(`^(call|toolu)_[A-Za-z0-9_-]{8,}$`)

// match says where got is not what is wanted; "" where it is. What is wanted of an
// object are some of its members; a member that begins with $ is a condition.
func match(want, got any, path string) string {
	if got == unseen {
		return ""
	}
	no := func(format string, args ...any) string { return path + ": " + fmt.Sprintf(format, args...) }
	switch want := want.(type) {
	case object:
		for key, w := range want {
			text, _ := got.(string)
			number, _ := got.(float64)
			ok := true
			switch key {
			case "$contains":
				ok = strings.Contains(text, w.(string))
			case "$not":
				ok = got != nil && !strings.Contains(text, w.(string))
			case "$all":
				for _, part := range w.([]any) {
					ok = ok && strings.Contains(text, part.(string))
				}
			case "$in":
				ok = slices.Contains(w.([]any), got)
			case "$min":
				ok = number >= w.(float64)
			case "$is":
				ok = callID.MatchString(text)
			default:
				members, is := got.(object)
				if !is {
					return no("got %v, want an object", got)
				}
				if wrong := match(w, members[key], path+"."+key); wrong != "" {
					return wrong
				}
			}
			if !ok {
				return no("got %.200v, want %s %v", got, key, w)
			}
		}
		return ""
	case []any:
		list, _ := got.([]any)
		if len(list) != len(want) {
			return no("got %d of them: %.200v; want %d", len(list), got, len(want))
		}
		for i := range want {
			if wrong := match(want[i], list[i], fmt.Sprintf("%s[%d]", path, i)); wrong != "" {
				return wrong
			}
		}
		return ""
	}
	if !reflect.DeepEqual(want, got) {
		return no("got %.200v, want %v", got, want)
	}
	return ""
}

// plain is a value as encoding/json reads it.
func plain(v any) (out any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // ours: cannot happen
	}
	json.Unmarshal(data, &out)
	return out
}

// result is what a client made of a reply, in a form common to all. What it does not
// show is unseen.
type result struct {
	Error   any      `json:"error"`  // {status, code, type, param, message} of a refusal
	Broken  any      `json:"broken"` // how a stream failed
	Choices []choice `json:"choices"`
	Usage   any      `json:"usage"`    // {prompt, completion, cached}; nil: none came
	IDs     any      `json:"ids"`      // how many ids the chunks had
	CallIDs any      `json:"call_ids"` // how many ids the calls had
	Ends    any      `json:"finishes"` // how many finish reasons came
	Waited  any      `json:"waited"`   // milliseconds
	Begun   any      `json:"begun"`    // tokens of the prompt, as the stream's beginning has them
	Blocks  any      `json:"blocks"`   // how many blocks, or items, there are
	Gaps    any      `json:"gaps"`     // in the numbers of events
	Nulls   any      `json:"nulls"`    // in the place of lists
	Freed   any      `json:"freed"`
}

type choice struct {
	Content   any    `json:"content"`
	Length    int    `json:"length"`
	JSON      string `json:"json"` // "object" where content is one, "cut" where it is the beginning of one
	Reasoning any    `json:"reasoning"`
	Refusal   any    `json:"refusal"`
	Calls     []call `json:"calls"`
	Finish    any    `json:"finish"`
}

type call struct {
	ID        any    `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// newChoice is a choice of what a client shows as strings, of which "" is nothing.
func newChoice(content, reasoning, finish string, calls ...call) choice {
	c := choice{Content: orNil(content), Length: len(content), Reasoning: orNil(reasoning), Finish: finish, Calls: calls}
	if strings.HasPrefix(strings.TrimSpace(content), "{") {
		c.JSON = "object"
		if !json.Valid([]byte(content)) && finish == "length" {
			c.JSON = "cut"
		}
	}
	return c
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// complete fills in what follows from the rest.
func (r *result) complete() {
	ids, calls := map[any]bool{}, 0
	for i := range r.Choices {
		c := &r.Choices[i]
		if c.JSON == "" {
			c.JSON = "none"
		}
		for _, x := range c.Calls {
			ids[x.ID] = true
			calls++
		}
	}
	if r.CallIDs == nil && calls > 0 {
		r.CallIDs = len(ids)
	}
	for _, x := range []*any{&r.IDs, &r.Ends} {
		if *x == nil {
			*x = unseen
		}
	}
}
