//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// talk asks a server for the next turn of a conversation.
func talk(t *testing.T, s *served, session string, messages []map[string]string) (text string, cached int, err error) {
	t.Helper()
	request := map[string]any{"messages": messages, "temperature": 0, "max_tokens": 24, "ignore_eos": true}
	if session != "" {
		request["session"] = session
	}
	data, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	w, err := http.Post(s.url+"/v1/chat/completions", "application/json", bytes.NewReader(data))
	if err != nil {
		return "", 0, err
	}
	defer w.Body.Close()
	var reply struct {
		Choices []struct{ Message struct{ Content string } }
		Usage   struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	data, err = io.ReadAll(w.Body)
	if err != nil {
		return "", 0, err
	}
	if err := json.Unmarshal(data, &reply); err != nil || len(reply.Choices) != 1 {
		t.Fatalf("%v: %s", err, data)
	}
	return reply.Choices[0].Message.Content, reply.Usage.Details.Cached, nil
}

func say(role, text string) map[string]string {
	return map[string]string{"role": role, "content": text}
}

// TestServeSessions: a conversation goes on after each restart of the program from
// disk, with the text that it has without; named, and by itself at the program's end.
func TestServeSessions(t *testing.T) {
	for name, model := range sessionModels {
		t.Run(name, func(t *testing.T) { testServeSessions(t, model) })
	}
}

// sessionModels are the embedded one, and a hybrid, whose states are saved, too.
var sessionModels = map[string][]string{"dense": nil, "hybrid": {"--model", "../../models/tinygsmnext"}}

func testServeSessions(t *testing.T, model []string) {
	dir := filepath.Join(t.TempDir(), "sessions")
	plain := startServe(t, append([]string{"--listen", "127.0.0.1:0", "--seal=false"}, model...)...)
	for _, name := range []string{"talk", ""} {
		messages := []map[string]string{say("user", name+strings.Repeat("The hall is large. ", 20))}
		for turn := range 3 {
			want, _, err := talk(t, plain, "", messages)
			if err != nil {
				t.Fatal(err)
			}
			s := startServe(t, append([]string{"--listen", "127.0.0.1:0", "--session-dir", dir}, model...)...)
			got, cached, err := talk(t, s, name, messages)
			if err != nil {
				t.Fatal(err)
			}
			if got != want || turn > 0 && cached < 64 {
				t.Errorf("session %q, turn %d: %q, %d tokens from disk; want %q", name, turn, got, cached, want)
			}
			if code := s.end(t, syscall.SIGTERM); code != 0 {
				t.Errorf("exit code %d", code)
			}
			messages = append(messages, say("assistant", got), say("user", fmt.Sprintf("And hall %d?", turn)))
		}
	}
}

// TestServeKilled: the program is killed while it saves; what was said to be saved is
// there, and the conversation's text is what it is without sessions.
func TestServeKilled(t *testing.T) {
	for name, model := range sessionModels {
		t.Run(name, func(t *testing.T) { testServeKilled(t, model) })
	}
}

func testServeKilled(t *testing.T, model []string) {
	rounds := 4
	if os.Getenv("CI") != "" && !testing.Short() {
		rounds = 20
	}
	dir := filepath.Join(t.TempDir(), "sessions")
	r := rand.New(rand.NewPCG(5, 5))
	plain := startServe(t, append([]string{"--listen", "127.0.0.1:0", "--seal=false"}, model...)...)
	messages := []map[string]string{say("user", strings.Repeat("The hall is large. ", 40))}
	saved := 0
	for round := range rounds {
		want, _, err := talk(t, plain, "", messages)
		if err != nil {
			t.Fatal(err)
		}
		s := startServe(t, append([]string{"--listen", "127.0.0.1:0", "--session-dir", dir}, model...)...)
		got, cached, err := talk(t, s, "talk", messages)
		if err != nil || got != want || saved > 0 && cached < 64 {
			t.Fatalf("round %d: %q, %d tokens from disk, %v; want %q", round, got, cached, err, want)
		}
		if round%2 == 0 {
			w, err := http.Post(s.url+"/sessions/talk/save", "", nil)
			if err != nil {
				t.Fatal(err)
			}
			said, _ := io.ReadAll(w.Body)
			w.Body.Close()
			if w.StatusCode != 200 {
				t.Fatalf("round %d: %s: %s", round, w.Status, said)
			}
			saved++
		} else {
			time.Sleep(time.Duration(r.IntN(5)) * time.Millisecond)
		}
		s.end(t, syscall.SIGKILL)
		messages = append(messages, say("assistant", got), say("user", fmt.Sprintf("And hall %d?", round)))
	}
}

// TestSessionUsage: what cannot be is said in one line.
func TestSessionUsage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	open := filepath.Join(t.TempDir(), "open")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--session-disk 1X --session-dir d", 2, "--session-disk"},
		{"--session-disk 1GiB", 2, "--session-dir"},
		{"--cache-share 0", 2, "--cache-share"},
		{"--cache-share 2", 2, "--cache-share"},
		{"--listen 127.0.0.1:0 --session-dir " + file, 1, "--session-dir"},
		{"--listen 127.0.0.1:0 --session-dir " + open, 1, "chmod 700"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(append([]string{"windrow", "serve"}, strings.Fields(c.args)...), strings.NewReader(""), &stdout, &stderr)
		if code != c.code || !strings.Contains(stderr.String(), c.want) || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%s: %d %q, want %d %q", c.args, code, stderr.String(), c.code, c.want)
		}
	}
}
