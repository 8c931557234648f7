package server

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestAnthropicModels: clients that name a version of Anthropic's API get models, pages
// of them, and errors in its form; others do not.
func TestAnthropicModels(t *testing.T) {
	s := serving(t, &script{}, Options{})
	get := func(path string) (status int, body string) {
		w, data := ask(t, s, "GET", path, "", "anthropic-version", "2023-06-01")
		return w.StatusCode, string(data)
	}
	for _, path := range []string{"/v1/models", "/models", "/v1/models?limit=1", "/v1/models/"} {
		status, body := get(path)
		var page anthropicModels
		if err := json.Unmarshal([]byte(body), &page); err != nil || status != 200 || len(page.Data) != 1 || page.HasMore || page.FirstID == nil || *page.FirstID != "fake/model" || *page.LastID != "fake/model" {
			t.Fatalf("%s: %d %s", path, status, body)
		}
		if m := page.Data[0]; m.Type != "model" || m.ID != "fake/model" || m.DisplayName == "" || m.MaxInputTokens != 1000 || !strings.HasSuffix(m.CreatedAt, "Z") {
			t.Errorf("%s: %+v", path, m)
		}
	}
	for _, path := range []string{"/v1/models?after_id=fake%2Fmodel", "/v1/models?before_id=fake%2Fmodel"} {
		if status, body := get(path); status != 200 || body != `{"data":[],"has_more":false,"first_id":null,"last_id":null}`+"\n" {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, body := get("/v1/models/fake/model"); status != 200 || !strings.HasPrefix(body, `{"type":"model","id":"fake/model"`) {
		t.Errorf("%d %s", status, body)
	}
	for path, want := range map[string]string{
		"/v1/models/other": "not_found_error", "/v1/models?limit=0": "invalid_request_error", "/v1/models?limit=x": "invalid_request_error",
		"/v1/models?after_id=x": "invalid_request_error", "/v1/models?before_id=x": "invalid_request_error",
		"/v1/models?before_id=fake%2Fmodel&after_id=fake%2Fmodel": "invalid_request_error",
	} {
		status, body := get(path)
		if status/100 != 4 || !strings.HasPrefix(body, `{"type":"error","error":{"type":"`+want+`"`) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if w, data := ask(t, s, "GET", "/v1/models", ""); w.StatusCode != 200 || object(t, data)["object"] != "list" {
		t.Errorf("without the header: %s", data)
	}
}
