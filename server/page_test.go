package server

import (
	"regexp"
	"strings"
	"testing"

	"windrow/page"
)

const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// TestPage: browsers get the page at /, without a key; clients of the API get what they
// always got.
func TestPage(t *testing.T) {
	keys := &Keys{}
	if err := keys.Add("ann", "12345678"); err != nil {
		t.Fatal(err)
	}
	h := serving(t, &script{}, Options{})
	locked := serving(t, &script{}, Options{Keys: keys})
	bare := serving(t, &script{}, Options{NoUI: true})

	for _, server := range []string{"open", "locked"} {
		at := h
		if server == "locked" {
			at = locked
		}
		w, data := ask(t, at, "GET", "/", "", "Accept", browser)
		if w.StatusCode != 200 || w.Header.Get("Content-Type") != "text/html; charset=utf-8" || w.Header.Get("Content-Security-Policy") != page.Policy || w.Header.Get("Vary") != "Accept" {
			t.Errorf("%s: %d %v", server, w.StatusCode, w.Header)
		}
		for _, m := range regexp.MustCompile(`(?:src|href)="(ui/[^"]+)"`).FindAllStringSubmatch(string(data), -1) {
			if a, _ := ask(t, at, "GET", "/"+m[1], ""); a.StatusCode != 200 || !strings.Contains(a.Header.Get("Cache-Control"), "immutable") {
				t.Errorf("%s: %s: %d %v", server, m[1], a.StatusCode, a.Header)
			}
		}
		if w, data := ask(t, at, "HEAD", "/", "", "Accept", browser); w.StatusCode != 200 || len(data) > 0 {
			t.Errorf("%s: HEAD: %d %s", server, w.StatusCode, data)
		}
	}
	for _, accept := range []string{"*/*", "application/json", "text/html;q=0, */*", ""} {
		w, data := ask(t, h, "GET", "/", "", "Accept", accept)
		if w.StatusCode != 200 || at(object(t, data), "server") != "windrow" {
			t.Errorf("Accept %q: %d %s", accept, w.StatusCode, data)
		}
		if w, _ := ask(t, locked, "GET", "/", "", "Accept", accept); w.StatusCode != 401 {
			t.Errorf("Accept %q without a key: %d", accept, w.StatusCode)
		}
	}
	if w, _ := ask(t, h, "HEAD", "/", ""); w.StatusCode != 200 {
		t.Errorf("HEAD: %d", w.StatusCode)
	}
	if w, _ := ask(t, h, "POST", "/", "{}", "Accept", browser); w.StatusCode != 405 {
		t.Errorf("POST: %d", w.StatusCode)
	}
	if w, data := ask(t, bare, "GET", "/", "", "Accept", browser); at(object(t, data), "server") != "windrow" {
		t.Errorf("without the page: %d %s", w.StatusCode, data)
	}
	for _, path := range []string{"/ui/", "/ui/main.js", "/ui/0000000000000000/js/main.js", "/ui/../page.go"} {
		if w, _ := ask(t, h, "GET", path, ""); w.StatusCode != 404 {
			t.Errorf("%s: %d", path, w.StatusCode)
		}
	}
}

// TestSlots: who runs and waits is listed.
func TestSlots(t *testing.T) {
	_, data := ask(t, serving(t, &script{}, Options{}), "GET", "/slots", "")
	want := map[string]any{"id": "req_1", "mode": "ar", "state": "decode", "prompt": 3.0, "tokens": 2.0, "rows": 1.0}
	for key, v := range want {
		if got := at(object(t, data), "requests", 0, key); got != v {
			t.Errorf("%s: %v, want %v", key, got, v)
		}
	}
}
