package clients

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
)

// TestOpenAPIDocument: the file is OpenAPI.
func TestOpenAPIDocument(t *testing.T) {
	data, err := os.ReadFile(contractPath)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := libopenapi.NewDocument(data)
	if err != nil {
		t.Fatal(err)
	}
	v, errs := validator.NewValidator(doc)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if ok, wrong := v.ValidateDocument(); !ok {
		for _, e := range wrong {
			t.Errorf("%s: %s", e.Message, e.Reason)
		}
	}
}

// TestOpenAPIServerTests: what the server's own tests ask and get is as the file says.
func TestOpenAPIServerTests(t *testing.T) {
	c, err := openContract()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "exchanges")
	run := exec.CommandContext(t.Context(), "go", "test", "-count=1", "./server")
	run.Dir, run.Env = "..", append(os.Environ(), "WINDROW_EXCHANGES="+name)
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 8<<20)
	seen, wrong := map[string]bool{}, 0
	n := 0
	for ; lines.Scan(); n++ {
		var x traffic
		if err := json.Unmarshal(lines.Bytes(), &x); err != nil {
			t.Fatal(err)
		}
		if err := c.check(x); err != nil && wrong < 20 {
			wrong++
			t.Error(err)
		} else if x.Status == http.StatusOK {
			seen[c.path(x.Path)] = true
		}
	}
	if err := lines.Err(); err != nil || n < 200 {
		t.Errorf("%d exchanges: %v", n, err)
	}
	for path := range c.doc["paths"].(object) {
		if !seen[path] && path != "/v1/embeddings" {
			t.Errorf("%s: no test of the server gets an answer of it", path)
		}
	}
}

// TestOpenAPIProgram: the program's answers are as the file says, with keys and without.
func TestOpenAPIProgram(t *testing.T) {
	c, err := openContract()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ method, path, body string }{
		{"GET", "/", ""}, {"HEAD", "/", ""}, {"GET", "/health", ""}, {"GET", "/ready", ""}, {"GET", "/props", ""}, {"GET", "/slots", ""}, {"GET", "/metrics", ""},
		{"GET", "/openapi.json", ""}, {"GET", "/v1/models", ""}, {"GET", "/v1/models/tiny-gsm", ""}, {"GET", "/v1/models/other", ""}, {"GET", "/v1/other", ""},
		{"PUT", "/v1/models", ""}, {"POST", "/v1/embeddings", "{}"},
		{"POST", "/tokenize", `{"content":"é","with_pieces":true}`}, {"POST", "/detokenize", `{"tokens":[1,2]}`}, {"POST", "/apply-template", `{"messages":[{"role":"user","content":"a"}]}`},
		{"POST", "/v1/completions", `{"prompt":"2 + 2 =","max_tokens":8,"stream":true,"n":2}`},
		{"POST", "/v1/completions", `{"prompt":[1,2],"max_tokens":8,"seed":18446744073709551615,"timings_per_token":true}`},
		{"POST", "/v1/chat/completions", `{"messages":[]}`},
	} {
		for _, server := range []string{"binary", "locked"} {
			r, err := http.NewRequestWithContext(t.Context(), x.method, servers[server]+x.path, strings.NewReader(x.body))
			if err != nil {
				t.Fatal(err)
			}
			w, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(w.Body)
			w.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.check(traffic{x.method, x.path, x.body, w.StatusCode, w.Header, string(data)}); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestContract: what the file does not have is noticed.
func TestContract(t *testing.T) {
	c, err := openContract()
	if err != nil {
		t.Fatal(err)
	}
	header := func(kind string, ignored ...string) http.Header {
		return http.Header{"Content-Type": {kind}, "Windrow-Ignored": ignored}
	}
	const good = `{"messages":[{"role":"user","content":"a"}]}`
	const chunk = `{"id":"a","object":"chat.completion.chunk","created":1,"model":"m","system_fingerprint":"f","choices":[{"index":0,"delta":{"content":"x"},"logprobs":null,"finish_reason":null}]}`
	chat := func(request, kind, reply string, ignored ...string) traffic {
		return traffic{"POST", "/v1/chat/completions", request, 200, header(kind, ignored...), reply}
	}
	if err := c.check(chat(good, "text/event-stream", "data: "+chunk+"\n\n")); err != nil {
		t.Fatal(err)
	}
	for what, x := range map[string]traffic{
		"another field in a chunk":   chat(good, "text/event-stream", "data: "+strings.Replace(chunk, `"delta"`, `"more":1,"delta"`, 1)+"\n\n"),
		"a chunk without its index":  chat(good, "text/event-stream", "data: "+strings.Replace(chunk, `"index":0,`, "", 1)+"\n\n"),
		"a null role":                chat(good, "text/event-stream", "data: "+strings.Replace(chunk, `{"content":"x"}`, `{"role":null}`, 1)+"\n\n"),
		"half an event":              chat(good, "text/event-stream", "data: "+chunk+"\n"),
		"another type":               chat(good, "text/plain", "x"),
		"an unknown field is taken":  chat(`{"wibble":1,"messages":[{"role":"user","content":"a"}]}`, "text/event-stream", "data: "+chunk+"\n\n"),
		"a known field is ignored":   chat(`{"n":1,"messages":[{"role":"user","content":"a"}]}`, "text/event-stream", "data: "+chunk+"\n\n", "n"),
		"a request of another type":  chat(`{"messages":"a"}`, "text/event-stream", "data: "+chunk+"\n\n"),
		"another path":               {"GET", "/v1/other", "", 200, header("application/json"), "{}"},
		"an error of another form":   {"GET", "/v1/models", "", 401, header("application/json"), `{"error":"no"}`},
		"an error without its param": {"GET", "/v1/other", "", 404, header("application/json"), `{"error":{"message":"a","type":"not_found_error","code":null}}`},
	} {
		if c.check(x) == nil {
			t.Errorf("%s: nobody noticed", what)
		}
	}
}
