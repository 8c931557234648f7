package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
)

// soakKind is a kind of request.
type soakKind struct {
	name, path string
	want       int  // the status, where it is not 200
	alone      bool // its answer is known, see soaking.known
	make       func(r *rand.Rand) []byte
}

type object = map[string]any

// encoded is an object as JSON.
func encoded(v object) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own types: cannot happen
	}
	return data
}

const (
	pathChat, pathCompletions   = "/v1/chat/completions", "/v1/completions"
	pathResponses, pathMessages = "/v1/responses", "/v1/messages"
)

// prepare finds what the server can do, and asks the known questions alone.
func (r *soaking) prepare(ctx context.Context) error {
	modes := []string{"ar"}
	try := func(path string, v object) (bool, error) {
		_, err := r.send(ctx, path, r.with(v))
		var status statusError
		if errors.As(err, &status) && (status == http.StatusNotFound || status == http.StatusBadRequest || status == http.StatusNotImplemented) {
			return false, nil
		}
		return err == nil, err
	}
	for _, mode := range []string{"verified", "wedlm"} {
		ok, err := try(pathCompletions, object{"prompt": []int{lowID}, "max_tokens": 1, "mode": mode})
		if err != nil {
			return fmt.Errorf("the server at %s: %w", r.URL, err)
		}
		if ok {
			modes = append(modes, mode)
		}
	}
	all := append(r.completionKinds(modes), soakKind{name: "bad", path: pathChat, want: http.StatusBadRequest, make: func(random *rand.Rand) []byte {
		good := string(r.conversation(random, object{}))
		return []byte(good[:random.IntN(len(good))])
	}})
	for _, k := range r.conversationKinds(modes) {
		ok, err := try(k.path, k.probe)
		if err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		if ok {
			all = append(all, k.soakKind)
		}
	}
	var questions [][]byte
	for i := range 8 {
		q := r.with(object{"prompt": promptIDs(r.Seed, 1000+i, 20+30*i), "max_tokens": 24, "mode": modes[i%len(modes)],
			"temperature": float64(i%2) * 0.8, "seed": i, "ignore_eos": true, "cache_salt": fmt.Sprint(i / 4)})
		text, err := r.send(ctx, pathCompletions, q)
		if err != nil {
			return fmt.Errorf("a known question: %w", err)
		}
		r.known[string(q)], questions = text, append(questions, q)
	}
	all = append(all, soakKind{name: "known", path: pathCompletions, alone: true, make: func(random *rand.Rand) []byte {
		return questions[random.IntN(len(questions))]
	}})
	r.kinds = all
	return nil
}

// with adds what each request has.
func (r *soaking) with(v object) []byte {
	if r.Model != "" {
		v["model"] = r.Model
	}
	return encoded(v)
}

// completionKinds continue ids, of which some begin alike.
func (r *soaking) completionKinds(modes []string) (list []soakKind) {
	for _, mode := range modes {
		list = append(list, soakKind{name: "completion " + mode, path: pathCompletions, make: func(random *rand.Rand) []byte {
			ids := promptIDs(r.Seed, random.IntN(6), 64*random.IntN(6)+leastPrompt)
			ids = append(ids, promptIDs(r.Seed, 10+random.IntN(1<<20), leastPrompt+random.IntN(120))...)
			v := object{"prompt": ids, "mode": mode, "max_tokens": 1 + random.IntN(64), "stream": random.IntN(2) == 0, "n": 1 + random.IntN(3)}
			if random.IntN(2) == 0 {
				v["temperature"], v["top_p"], v["seed"] = 0.9, 0.95, random.IntN(100)
			}
			if random.IntN(3) == 0 {
				v["stop"] = []string{"e", "11"}
			}
			if random.IntN(3) == 0 {
				v["ignore_eos"] = true
			}
			return r.with(v)
		}})
	}
	return list
}

// probedKind is a kind that not every server has.
type probedKind struct {
	soakKind
	probe object
}

// conversationKinds answer conversations, with and without a form of the answer.
func (r *soaking) conversationKinds(modes []string) (list []probedKind) {
	hello := []object{{"role": "user", "content": "hello"}}
	schema := object{"type": "object", "properties": object{"n": object{"type": "integer", "maximum": 999}, "s": object{"type": "string", "maxLength": 20}},
		"required": []string{"n", "s"}, "additionalProperties": false}
	form := object{"type": "json_schema", "json_schema": object{"name": "x", "schema": schema}}
	add := func(name, path string, fixed object) {
		probe := object{"max_tokens": 1}
		if path == pathResponses {
			probe = object{"input": hello, "max_output_tokens": 16}
		} else {
			probe["messages"] = hello
		}
		for k, v := range fixed {
			probe[k] = v
		}
		list = append(list, probedKind{soakKind{name: name, path: path, make: func(random *rand.Rand) []byte {
			v := object{"stream": random.IntN(2) == 0}
			for k, x := range fixed {
				v[k] = x
			}
			if path == pathChat {
				v["mode"] = modes[random.IntN(min(2, len(modes)))]
			}
			return r.conversationFor(path, random, v)
		}}, probe})
	}
	add("chat", pathChat, object{})
	add("chat with a schema", pathChat, object{"response_format": form})
	add("chat with a regular expression", pathChat, object{"regex": "[a-z]{1,20}( [0-9]{1,5}){0,4}"})
	add("chat with thinking off", pathChat, object{"chat_template_kwargs": object{"enable_thinking": false}})
	add("responses", pathResponses, object{})
	add("messages", pathMessages, object{})
	return list
}

// conversation is one of some turns, of which some begin alike.
func (r *soaking) conversation(random *rand.Rand, v object) []byte {
	return r.conversationFor(pathChat, random, v)
}

func (r *soaking) conversationFor(path string, random *rand.Rand, v object) []byte {
	system := promptWords(r.Seed, random.IntN(4), 20*random.IntN(12))
	messages := []object{{"role": "user", "content": system + strings.Repeat(" What then?", random.IntN(4))}}
	for range random.IntN(3) {
		messages = append(messages, object{"role": "assistant", "content": "It is 12."},
			object{"role": "user", "content": promptWords(r.Seed, random.IntN(1<<16), random.IntN(60))})
	}
	limit := 1 + random.IntN(64)
	if path == pathResponses {
		v["input"], v["max_output_tokens"] = messages, max(16, limit)
	} else {
		v["messages"], v["max_tokens"] = messages, limit
	}
	return r.with(v)
}
