package server

import (
	"fmt"
	"strings"
	"testing"
)

// TestOllama: what editors ask before they use the chat API.
func TestOllama(t *testing.T) {
	h := serving(t, &script{}, Options{})
	_, data := ask(t, h, "GET", "/api/version", "")
	var major, minor, patch int
	if n, err := fmt.Sscanf(fmt.Sprint(at(object(t, data), "version")), "%d.%d.%d", &major, &minor, &patch); n != 3 || err != nil || major == 0 && (minor < 6 || minor == 6 && patch < 4) {
		t.Errorf("version %s", data)
	}
	_, data = ask(t, h, "GET", "/api/tags", "")
	one := at(object(t, data), "models", 0)
	if at(one, "name") != "fake/model" || at(one, "model") != "fake/model" || len(fmt.Sprint(at(one, "digest"))) != 64 || at(one, "modified_at") == "" || len(list(at(one, "details", "families"))) != 1 {
		t.Errorf("%s", data)
	}
	for _, body := range []string{`{"model":"fake/model"}`, `{"name":"fake/model","verbose":false}`} {
		_, data = ask(t, h, "POST", "/api/show", body)
		v := object(t, data)
		info, _ := v["model_info"].(map[string]any)
		if info[fmt.Sprint(info["general.architecture"], ".context_length")] != 1000.0 || text(v["capabilities"]) != `["completion","tools","thinking"]` || v["template"] != toolTemplate {
			t.Errorf("%s", data)
		}
	}
	for path, want := range map[string]int{"/api/show": 400, "/api/chat": 404, "/api/generate": 404} {
		w, data := ask(t, h, "POST", path, "{}")
		if message, ok := object(t, data)["error"].(string); w.StatusCode != want || !ok || message == "" {
			t.Errorf("%s: %d %s", path, w.StatusCode, data)
		}
	}
	w, data := ask(t, h, "POST", "/api/show", `{"model":"other"}`)
	if message, _ := object(t, data)["error"].(string); w.StatusCode != 404 || !strings.Contains(message, "other") {
		t.Errorf("%d %s", w.StatusCode, data)
	}
	if got := capabilities("{{ messages }}"); fmt.Sprint(got) != "[completion]" {
		t.Errorf("%v", got)
	}
	spoil(t, "/api/show", `{"model":"fake/model","verbose":true}`)
	retype(t, "/api/show", `{"model":"fake/model","name":"fake/model","verbose":true}`)
}
