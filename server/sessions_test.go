package server

import (
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"windrow/backend"
	"windrow/conformance/decodertest"
	"windrow/engine"
	"windrow/models/tinygsm"
	"windrow/schedule"
	"windrow/session"
)

// keeping is the embedded model with sessions in a folder.
func keeping(t *testing.T, dir string) (*Model, *schedule.Scheduler, func()) {
	t.Helper()
	if !tinygsm.Available {
		t.Skip("built without the embedded model")
	}
	e, err := engine.Open(t.Context(), "", engine.Options{Backend: decodertest.Device(), Measurements: engine.Measurements{Folder: t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	store, err := session.Open(dir, session.Options{
		Fingerprint: SessionFingerprint(e, "test"), PageTokens: backend.PageTokens, PageBytes: int(e.KVPageBytes()),
		Note: func(line string) { t.Error(line) },
	})
	if err != nil {
		t.Fatal(err)
	}
	s := schedule.New(e, schedule.Options{Sessions: store, Chunk: decodertest.Chunk()})
	end := func() {
		s.Close()
		store.Close()
		e.Close()
	}
	t.Cleanup(end)
	return ForEngine(t.Context(), e, s, "test"), s, end
}

// chairs is a question whose prompt has more than a page.
func chairs(n int) string {
	return strings.Repeat("Some halls are large, and some are small. ", 12) + fmt.Sprintf("A hall has %d rows with 9 chairs in each row. How many chairs are there?", n)
}

// TestSessions: a conversation with a name is saved, listed, found after a restart by
// its key alone, and deleted.
func TestSessions(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	keys := new(Keys)
	for _, name := range []string{"ann", "bob"} {
		if err := keys.Add(name, name+"-secret"); err != nil {
			t.Fatal(err)
		}
	}
	key := func(name string) []string { return []string{"Authorization", "Bearer " + name + "-secret"} }
	turn1 := fmt.Sprintf(`"messages":[{"role":"user","content":%q}],"temperature":0,"max_tokens":60`, chairs(5))
	m, _, end := keeping(t, dir)
	h := httptest.NewServer(New(m, Options{Keys: keys}))
	_, data := ask(t, h, "POST", "/v1/chat/completions", "{"+turn1+`,"session":"talk"}`, key("ann")...)
	said, _ := at(object(t, data), "choices", 0, "message", "content").(string)
	if said == "" {
		t.Fatalf("%s", data)
	}
	w, data := ask(t, h, "POST", "/sessions/talk/save", "", key("ann")...)
	if v := object(t, data); w.StatusCode != 200 || at(v, "name") != "talk" || at(v, "tokens").(float64) < 64 || at(v, "bytes").(float64) < 1000 {
		t.Errorf("%d %s", w.StatusCode, data)
	}
	if _, data := ask(t, h, "GET", "/v1/sessions", "", key("ann")...); at(object(t, data), "data", 0, "name") != "talk" {
		t.Errorf("%s", data)
	}
	for _, c := range []struct {
		method, path, body, owner string
		status                    int
	}{
		{"GET", "/sessions", "", "bob", 200},
		{"POST", "/sessions/talk/save", "", "bob", 404},
		{"DELETE", "/sessions/talk", "", "bob", 404},
		{"GET", "/sessions/talk", "", "ann", 405},
		{"DELETE", "/sessions", "", "ann", 405},
		{"POST", "/sessions/..%2Fx/save", "", "ann", 404},
		{"POST", "/sessions/talk/load", "", "ann", 404},
		{"GET", "/sessions", "", "eve", 401},
		{"POST", "/v1/chat/completions", "{" + turn1 + `,"session":"a/b"}`, "ann", 400},
		{"POST", "/v1/chat/completions", "{" + turn1 + `,"session":""}`, "ann", 400},
		{"POST", "/v1/chat/completions", "{" + turn1 + `,"session":7}`, "ann", 400},
		{"POST", "/v1/chat/completions", "{" + turn1 + `,"session":"x","n":2}`, "ann", 400},
	} {
		if w, data := ask(t, h, c.method, c.path, c.body, key(c.owner)...); w.StatusCode != c.status || c.owner == "bob" && strings.Contains(string(data), "talk") {
			t.Errorf("%s %s by %s: %d %s, want %d", c.method, c.path, c.owner, w.StatusCode, data, c.status)
		}
	}
	// What is too short to be kept is not there, and that says why.
	_, data = ask(t, h, "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"What is 17 + 25?"}],"max_tokens":8,"session":"short"}`, key("ann")...)
	if n, _ := at(object(t, data), "usage", "total_tokens").(float64); n < 10 || n >= backend.PageTokens {
		t.Errorf("%s", data)
	}
	if w, data := ask(t, h, "POST", "/sessions/short/save", "", key("ann")...); w.StatusCode != 404 || !strings.Contains(string(data), "there is no such session: one is kept from 64 tokens on, prompt and answer together") {
		t.Errorf("%d %s", w.StatusCode, data)
	}
	h.Close()
	end()

	turn2 := fmt.Sprintf(`{"messages":[{"role":"user","content":%q},{"role":"assistant","content":%q},{"role":"user","content":"And with 6 rows?"}],"temperature":0,"max_tokens":40}`, chairs(5), said)
	fresh := httptest.NewServer(New(open(t), Options{}))
	defer fresh.Close()
	_, data = ask(t, fresh, "POST", "/v1/chat/completions", turn2)
	want := at(object(t, data), "choices", 0, "message", "content")
	for _, owner := range []string{"ann", "bob"} {
		m, s, end := keeping(t, dir)
		h = httptest.NewServer(New(m, Options{Keys: keys}))
		_, data = ask(t, h, "POST", "/v1/chat/completions", turn2, key(owner)...)
		v := object(t, data)
		if cached, _ := at(v, "usage", "prompt_tokens_details", "cached_tokens").(float64); (cached >= 64) != (owner == "ann") || at(v, "choices", 0, "message", "content") != want {
			t.Errorf("%s: %s\nwant %q", owner, data, want)
		}
		if st := s.State(); (st.SessionLoads == 1) != (owner == "ann") {
			t.Errorf("%s: %d loads", owner, st.SessionLoads)
		}
		if owner == "ann" {
			if w, data := ask(t, h, "DELETE", "/sessions/talk", "", key(owner)...); w.StatusCode != 200 {
				t.Errorf("%d %s", w.StatusCode, data)
			}
			if _, data := ask(t, h, "GET", "/metrics", "", key(owner)...); !strings.Contains(string(data), "windrow_session_loads_total{model_name=\"tiny-gsm\"} 1") {
				t.Errorf("%s", data)
			}
		}
		h.Close()
		end()
	}
}

// TestNoSessions: without a folder sessions are refused, not dropped.
func TestNoSessions(t *testing.T) {
	h := serving(t, &script{pieces: []string{"x"}}, Options{})
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/sessions", "", 501}, {"POST", "/sessions/x/save", "", 501}, {"DELETE", "/sessions/x", "", 501},
		{"POST", "/v1/chat/completions", "{" + hello + `,"session":"x"}`, 400},
	} {
		if w, data := ask(t, h, c.method, c.path, c.body); w.StatusCode != c.status || !strings.Contains(string(data), "on disk") {
			t.Errorf("%s %s: %d %s, want %d", c.method, c.path, w.StatusCode, data, c.status)
		}
	}
}

// TestSealed: what the next turn begins with is there when it comes, up to its question,
// and changes no text.
func TestSealed(t *testing.T) {
	hall := "A hall has 5 rows with 9 chairs in each row. How many chairs are there?" // its answer ends
	before := fmt.Sprintf(`{"role":"user","content":%q},{"role":"assistant","content":"There are 5 * 9 = 45 chairs.\n#### 45"},{"role":"user","content":%q}`, hall, hall)
	body := fmt.Sprintf(`{"messages":[%s],"temperature":0,"max_tokens":200}`, before)
	var texts []any
	var cached []float64
	for _, seal := range []bool{false, true} {
		m := open(t)
		h := httptest.NewServer(New(m, Options{Seal: seal}))
		defer h.Close()
		_, data := ask(t, h, "POST", "/v1/chat/completions", body)
		said := at(object(t, data), "choices", 0, "message", "content")
		for end := time.Now().Add(2 * time.Minute); seal && m.Scheduler.State().SealedTokens == 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("nothing is sealed")
			}
		}
		_, data = ask(t, h, "POST", "/v1/chat/completions", fmt.Sprintf(`{"messages":[%s,{"role":"assistant","content":%q},{"role":"user","content":"And with 6 rows?"}],"temperature":0,"max_tokens":40}`, before, said))
		v := object(t, data)
		texts = append(texts, at(v, "choices", 0, "message", "content"))
		n, _ := at(v, "usage", "prompt_tokens_details", "cached_tokens").(float64)
		cached = append(cached, at(v, "usage", "prompt_tokens").(float64)-n)
	}
	if texts[0] != texts[1] || texts[0] == nil {
		t.Errorf("%q, sealed %q", texts[0], texts[1])
	}
	if cached[1] >= cached[0] || cached[1] > 15 {
		t.Errorf("%v tokens were computed for the second turn, sealed %v: want those of its question", cached[0], cached[1])
	}
}
