package clients

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// recording is what an agent sends in the turns of a session. Agents resend their whole
// history: a turn's request is the body with the items of all turns up to it.
type recording struct {
	Path    string            `json:"path"`
	API     string            `json:"api"`
	Items   string            `json:"items"` // the field of the items
	Headers map[string]string `json:"headers"`
	Body    object            `json:"body"`
	Turns   [][]object        `json:"turns"`
}

// limits are the fields that bound an answer, by API. What the small model says to an
// agent is of no use: it is cut short.
var limits = map[string]string{"chat": "max_tokens", "messages": "max_tokens", "responses": "max_output_tokens"}

const answerTokens = 24

// request is the body of a turn.
func (r *recording) request(t *testing.T, turn int) []byte {
	t.Helper()
	body := maps.Clone(r.Body)
	items := []object{}
	for _, list := range r.Turns[:turn+1] {
		items = append(items, list...)
	}
	body[r.Items] = items
	body[limits[r.API]] = answerTokens
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(data), "$TURN", fmt.Sprint(turn))
	return []byte(strings.ReplaceAll(text, "$RANDOM", fmt.Sprintf("%05x", time.Now().UnixNano()%0xfffff)))
}

// send is a request with the agent's headers.
func (r *recording) send(t *testing.T, path string, body []byte) (*http.Response, string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, servers["tools"]+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for key, v := range r.Headers {
		q.Header.Set(key, v)
	}
	q.Header.Set("Content-Type", "application/json")
	w, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	data, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	c, err := openContract()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.check(traffic{http.MethodPost, path, string(body), w.StatusCode, w.Header, string(data)}); err != nil {
		t.Error(err)
	}
	return w, string(data)
}

// forgets reports whether the template drops thinking at a turn, which it does once the
// user says something new: the prompt is another from there on.
func (r *recording) forgets(turn int) bool {
	history := jsonOf(r.Turns[1 : turn+1])
	added := jsonOf(r.Turns[turn])
	thought := strings.Contains(history, `"thinking"`) || strings.Contains(history, "reasoning")
	return turn > 0 && thought && strings.Contains(added, `"role":"user"`) && (strings.Contains(added, `"text"`) || strings.Contains(added, `"content":"`))
}

func recordings(t *testing.T) map[string]*recording {
	t.Helper()
	paths, err := filepath.Glob("testdata/agents/*.json")
	if err != nil || len(paths) < 6 {
		t.Fatal(paths, err)
	}
	list := map[string]*recording{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		r := new(recording)
		if err := json.Unmarshal(data, r); err != nil {
			t.Fatal(path, err)
		}
		if len(r.Turns) < 3 {
			t.Fatalf("%s has %d turns", path, len(r.Turns))
		}
		list[strings.TrimSuffix(filepath.Base(path), ".json")] = r
	}
	return list
}

// TestAgents replays what agents send: every turn is answered by a well-formed stream,
// and from the second on what was sent before is found in the cache.
func TestAgents(t *testing.T) {
	for name, r := range recordings(t) {
		t.Run(name, func(t *testing.T) {
			var first, before totals
			for turn := range r.Turns {
				w, data := r.send(t, r.Path, r.request(t, turn))
				if w.StatusCode != http.StatusOK || !strings.HasPrefix(w.Header.Get("Content-Type"), "text/event-stream") {
					t.Fatalf("turn %d: %s: %.500s", turn, w.Status, data)
				}
				u, err := wellFormed(r.API, data)
				if err != nil {
					t.Fatalf("turn %d: %v\n%.2000s", turn, err, data)
				}
				t.Logf("turn %d: prompt %d, cached %d, answer %d; ignored %v", turn, u.prompt, u.cached, u.completion, w.Header.Values("Windrow-Ignored"))
				if u.completion < 1 || u.completion > answerTokens {
					t.Errorf("turn %d: %d tokens were generated", turn, u.completion)
				}
				// The end of a prompt, which opens the answer, is another in the next turn.
				const opening = 16
				want := before.prompt - opening
				if r.forgets(turn) {
					want = first.prompt - opening
				}
				if turn == 0 {
					first = u
				} else if u.cached < want || u.prompt <= before.prompt && !r.forgets(turn) {
					t.Errorf("turn %d: %d of %d tokens were cached, want %d", turn, u.cached, u.prompt, want)
				}
				before = u
			}
		})
	}
}
