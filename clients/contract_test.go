package clients

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// contract is the server's OpenAPI file, by which requests and replies are checked. The
// schemas of OpenAPI 3.1 are those of JSON Schema 2020-12.
type contract struct {
	doc      object
	compiler *jsonschema.Compiler
	mutex    sync.Mutex
	made     map[string]*jsonschema.Schema
	checked  int
}

const contractPath = "../server/openapi.json"

var openContract = sync.OnceValues(func() (*contract, error) {
	data, err := os.ReadFile(contractPath)
	if err != nil {
		return nil, err
	}
	c := &contract{compiler: jsonschema.NewCompiler(), made: map[string]*jsonschema.Schema{}}
	if err := json.Unmarshal(data, &c.doc); err != nil {
		return nil, err
	}
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(data)))
	if err != nil {
		return nil, err
	}
	return c, c.compiler.AddResource("file:///openapi.json", doc)
})

// traffic is a request and its reply.
type traffic struct {
	Method, Path, Request string
	Status                int
	Header                http.Header
	Reply                 string
}

// at follows keys into an object; nil where there is nothing.
func at(v any, keys ...string) any {
	for _, key := range keys {
		o, _ := v.(object)
		v = o[key]
	}
	return v
}

// path is the file's name of a path, "" where it has none.
func (c *contract) path(path string) string {
	path, _, _ = strings.Cut(path, "?")
	path = strings.TrimSuffix(path, "/")
	if path == "" {
		path = "/"
	}
	paths := c.doc["paths"].(object)
	for _, p := range []string{path, "/v1" + path, strings.TrimPrefix(path, "/v1")} {
		if paths[p] != nil {
			return p
		}
		if name, of := strings.CutPrefix(p, "/sessions/"); of {
			if _, action, deep := strings.Cut(name, "/"); deep {
				return "/sessions/{name}/" + action
			}
			return "/sessions/{name}"
		}
		if strings.HasPrefix(p, "/blob/") {
			return "/blob/{digest}"
		}
		if strings.HasPrefix(p, "/manifest/") {
			return "/manifest/{repo}/{revision}"
		}
		if strings.HasPrefix(p, "/v1/models/") {
			return "/v1/models/{model}"
		}
	}
	return ""
}

// check says what of an exchange the file does not have.
func (c *contract) check(x traffic) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.checked++
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%s %s, %d: %w\nrequest %.300s\nreply %.600s", x.Method, x.Path, x.Status, fmt.Errorf(format, args...), x.Request, x.Reply)
	}
	path := c.path(x.Path)
	method := map[string]string{http.MethodGet: "get", http.MethodHead: "get", http.MethodPost: "post", http.MethodDelete: "delete"}[x.Method]
	operation, _ := at(c.doc, "paths", path, method).(object)
	if x.Method == http.MethodOptions || strings.HasPrefix(x.Path, "/ui/") { // the page's files are no API
		return nil
	}
	if operation == nil {
		// Nothing is there: the words of the API to which the path would belong.
		if x.Status < 400 {
			return fail("the file does not have it")
		}
		name := "Error"
		if strings.HasPrefix(strings.TrimPrefix(x.Path, "/v1"), "/messages") {
			name = "MessagesError"
		}
		if strings.HasPrefix(x.Path, "/api/") {
			name = "OllamaError"
		}
		if at(c.doc, "components", "schemas", name) == nil {
			return nil
		}
		if err := c.validate("#/components/schemas/"+name, x.Reply); err != nil && x.Method != http.MethodHead {
			return fail("%w", err)
		}
		return nil
	}
	where := "#/paths/" + strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(path) + "/" + method
	if x.Status/100 == 2 && at(operation, "requestBody") != nil {
		if err := c.validate(where+"/requestBody/content/application~1json/schema", x.Request); err != nil {
			return fail("the request: %w", err)
		}
		if err := c.fields(operation, x); err != nil {
			return fail("%w", err)
		}
	}
	code := "default"
	if exact := strconv.Itoa(x.Status); at(operation, "responses", exact) != nil {
		code = exact
	}
	kind, _, _ := strings.Cut(x.Header.Get("Content-Type"), ";")
	content := at(operation, "responses", code, "content", kind)
	switch {
	case content == nil:
		return fail("the file has no reply of %q", kind)
	case x.Method == http.MethodHead, slices.Contains([]string{"text/plain", "text/html", "application/octet-stream"}, kind):
		return nil
	case kind == "application/json":
		if err := c.validate(where+"/responses/"+code+"/content/application~1json/schema", x.Reply); err != nil {
			return fail("the reply: %w", err)
		}
		return nil
	}
	events, _, err := readEvents(x.Reply)
	if err != nil {
		return fail("%w", err)
	}
	schema, _ := at(content, "x-event-schema", "$ref").(string)
	for i, e := range events {
		data, _ := json.Marshal(e.data)
		if err := c.validate(schema, string(data)); err != nil {
			return fail("event %d, %.300s: %w", i, data, err)
		}
	}
	return nil
}

// fields checks that the fields that the server knows are in the file, and no other.
func (c *contract) fields(operation object, x traffic) error {
	ref, _ := at(operation, "requestBody", "content", "application/json", "schema", "$ref").(string)
	known, _ := at(c.doc, "components", "schemas", strings.TrimPrefix(ref, "#/components/schemas/"), "properties").(object)
	ignored := map[string]bool{}
	for _, name := range x.Header.Values("Windrow-Ignored") {
		ignored[name] = true
	}
	var body object
	if err := json.Unmarshal([]byte(x.Request), &body); err != nil {
		return err
	}
	for name, v := range body {
		if v != nil && (known[name] != nil) == ignored[name] {
			return fmt.Errorf("the field %s: in the file %t, ignored by the server %t", name, known[name] != nil, ignored[name])
		}
	}
	return nil
}

// validate compares a JSON text with a schema of the file.
func (c *contract) validate(where, text string) error {
	s := c.made[where]
	if s == nil {
		var err error
		if s, err = c.compiler.Compile("file:///openapi.json" + where); err != nil {
			return err
		}
		c.made[where] = s
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	return s.Validate(v)
}
