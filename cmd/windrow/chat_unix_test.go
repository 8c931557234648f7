//go:build darwin || freebsd || linux || netbsd || openbsd

package main

import (
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"windrow/models/tinygsm"
)

const hint = "(ctrl-D or /exit leaves)"

// screen is what a terminal shows.
type screen struct {
	mutex sync.Mutex
	text  strings.Builder
}

// Write implements io.Writer. An endless loop of hints must not eat the memory.
func (s *screen) Write(p []byte) (int, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.text.Len() < 1<<20 {
		s.text.Write(p)
	}
	return len(p), nil
}

func (s *screen) count(text string) int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return strings.Count(s.text.String(), text)
}

// TestChatCtrlC presses ctrl-C in the program itself, in its own terminal.
func TestChatCtrlC(t *testing.T) {
	if !tinygsm.Available {
		t.Skip("built without the embedded model")
	}
	for _, before := range []string{"", "half a line"} {
		cmd := exec.Command("windrow", "chat", "--threads", "1")
		keys, err := pty.Start(cmd)
		if err != nil {
			t.Skipf("no pseudo-terminals here: %v", err)
		}
		var shown screen
		done := make(chan struct{})
		go func() { io.Copy(&shown, keys); close(done) }()
		await := func(text string, n int) {
			t.Helper()
			for end := time.Now().Add(20 * time.Second); shown.count(text) < n; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					cmd.Process.Kill()
					t.Fatalf("no %q after 20 s; the terminal shows %.300q", text, shown.text.String())
				}
			}
		}
		await("> ", 1)
		io.WriteString(keys, before)
		await(before, 1)
		io.WriteString(keys, "\x03")
		await(hint, 1)
		await("> ", 2)
		io.WriteString(keys, "/help\r")
		await("/reset forgets", 1)
		await("> ", 3)
		if n := shown.count(hint); n != 1 {
			t.Errorf("%q and ctrl-C: %d hints, want 1", before, n)
		}
		io.WriteString(keys, "\x04")
		if err := cmd.Wait(); err != nil {
			t.Errorf("%q and ctrl-C, ctrl-D: %v, want exit code 0", before, err)
		}
		keys.Close()
		<-done
	}
}
