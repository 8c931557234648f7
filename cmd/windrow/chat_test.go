package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"windrow/engine"
	"windrow/internal/testhelp"
	"windrow/models/tinygsm"
)

// TestChatSlowTemplate: a signal ends a reply that is still in its template.
func TestChatSlowTemplate(t *testing.T) {
	if !tinygsm.Available {
		t.Skip("built without the embedded model")
	}
	loops := strings.Repeat(`{% for i in range(100000) %}`, 4) + strings.Repeat(`{% endfor %}`, 4)
	config, err := json.Marshal(map[string]string{"chat_template": loops})
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for name, data := range tinygsm.Files() {
		if name == "tokenizer_config.json" {
			data = config
		}
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	e, err := engine.Open(t.Context(), folder, engine.Options{Backend: engine.CPU, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		var out, complaints bytes.Buffer
		s := &chatSession{partner: &modelPartner{engine: e, conversation: e.NewConversation()}, out: &out, err: &complaints}
		signals := make(chan os.Signal, 1)
		time.AfterFunc(20*time.Millisecond, func() { signals <- sig })
		var terminated bool
		took := testhelp.Took(func() { terminated, err = s.answer(t.Context(), signals, "x") })
		if took > time.Second { // its template would take two
			t.Errorf("%v: ended after %v", sig, took)
		}
		if err != nil || terminated != (sig == syscall.SIGTERM) {
			t.Errorf("%v: terminated %t, %v", sig, terminated, err)
		}
		if complaints.String() != "windrow: interrupted\n" || out.Len() > 0 || len(s.messages) > 0 {
			t.Errorf("%v: %q, %q, %d messages are kept", sig, complaints.String(), out.String(), len(s.messages))
		}
	}
}
