package server

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"windrow/decoder"
	"windrow/grammar"
)

// spoil sends a good request cut and spoiled at every byte: each is refused, at once.
func spoil(t *testing.T, path, good string) {
	t.Helper()
	h := New(fake(t, &script{pieces: []string{"x"}}), Options{})
	send := func(body string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "http://localhost"+path, strings.NewReader(body)))
		if !json.Valid(w.Body.Bytes()) {
			t.Fatalf("%q: %s", body, w.Body)
		}
		return w.Code
	}
	if code := send(good); code != 200 {
		t.Fatalf("%s: the good one: %d", path, code)
	}
	for i := range good {
		for _, body := range []string{good[:i], good[:i] + "\x01" + good[i+1:], good[:i] + "\xff" + good[i+1:], good[:i] + "\x00" + good[i:]} {
			if code := send(body); code != 400 {
				t.Errorf("%s: %q: %d", path, body, code)
			}
		}
	}
}

// retype sends a good request with each of its values replaced by one of every other
// type: each is refused, but those that are listed, by their path and, where only one
// type is taken, its name.
func retype(t *testing.T, path, good string, taken ...string) {
	t.Helper()
	m := fake(t, &script{pieces: []string{"x"}})
	m.Constrain = func(*grammar.Grammar) (decoder.Constraint, error) { return &counting{}, nil }
	h := New(m, Options{})
	values := map[string]any{"number": -7.5, "string": "x", "boolean": true, "list": []any{[]any{}}, "object": map[string]any{}}
	var root any
	if err := json.Unmarshal([]byte(good), &root); err != nil {
		t.Fatal(err)
	}
	send := func() (int, string) {
		body, _ := json.Marshal(root)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "http://localhost"+path, strings.NewReader(string(body))))
		if !json.Valid(w.Body.Bytes()) {
			t.Fatalf("%s: %s", body, w.Body)
		}
		return w.Code, w.Body.String()
	}
	if code, reply := send(); code != 200 {
		t.Fatalf("%s: the good one: %s", path, reply)
	}
	used := map[string]bool{}
	try := func(at, own string, set func(any)) {
		for kind, v := range values {
			if kind == own {
				continue
			}
			set(v)
			code, reply := send()
			_, name, _ := strings.Cut(at, ".")
			allowed := slices.IndexFunc(taken, func(s string) bool { return s == at || s == at+" "+kind })
			if allowed >= 0 {
				used[taken[allowed]] = true
			}
			switch {
			case allowed >= 0 && code == 200:
			case code != 400:
				t.Errorf("%s: %s as %s: %d %.200s", path, at, kind, code, reply)
			case name != "" && !strings.Contains(reply, strings.Split(at, ".")[0]):
				t.Errorf("%s: %s as %s: the message does not say where: %.200s", path, at, kind, reply)
			}
		}
	}
	var walk func(at string, v any)
	walk = func(at string, v any) {
		join := func(name string) string { return strings.TrimPrefix(at+"."+name, ".") }
		switch v := v.(type) {
		case map[string]any:
			for name, x := range v {
				try(join(name), typeOf(x), func(y any) { v[name] = y })
				v[name] = x
				walk(join(name), x)
			}
		case []any:
			for i, x := range v {
				try(join(fmt.Sprint(i)), typeOf(x), func(y any) { v[i] = y })
				v[i] = x
				walk(join(fmt.Sprint(i)), x)
			}
		}
	}
	walk("", root)
	for _, s := range taken {
		if !used[s] {
			t.Errorf("%s: there is no %s", path, s)
		}
	}
}

func typeOf(v any) string {
	switch v.(type) {
	case float64:
		return "number"
	case string:
		return "string"
	case bool:
		return "boolean"
	case []any:
		return "list"
	}
	return "object"
}
