package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"windrow/models/tinygsm"
	"windrow/tokenizer"
)

// TestChatSlowTemplate: a signal ends a reply that is still in its template.
func TestChatSlowTemplate(t *testing.T) {
	e := openTiny(t)
	loops := strings.Repeat(`{% for i in range(100000) %}`, 4) + strings.Repeat(`{% endfor %}`, 4)
	config, err := json.Marshal(map[string]string{"chat_template": loops})
	if err != nil {
		t.Fatal(err)
	}
	if e.tokens, err = tokenizer.New(tinygsm.Files()["tokenizer.json"], config); err != nil {
		t.Fatal(err)
	}
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		var out, complaints bytes.Buffer
		s := &chatSession{engine: e, out: &out, err: &complaints}
		signals := make(chan os.Signal, 1)
		time.AfterFunc(20*time.Millisecond, func() { signals <- sig })
		start := time.Now()
		terminated, err := s.answer(t.Context(), signals, "x")
		if took := time.Since(start); took > time.Second {
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
