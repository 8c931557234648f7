//go:build darwin || freebsd || linux || netbsd || openbsd

package main

import (
	"io"
	"os/exec"
	"testing"
	"time"

	"windrow/internal/testhelp"
	"windrow/models/tinygsm"
)

const hint = "(ctrl-D or /exit leaves)"

// TestChatCtrlC presses ctrl-C in the program itself, in its own terminal.
func TestChatCtrlC(t *testing.T) {
	if !tinygsm.Available {
		t.Skip("built without the embedded model")
	}
	for _, before := range []string{"", "half a line"} {
		cmd := exec.Command("windrow", "chat", "--threads", "1")
		keys, shown, done := testhelp.InTerminal(t, cmd)
		await := func(text string, n int) {
			t.Helper()
			for end := time.Now().Add(2 * time.Minute); shown.Count(text) < n; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					cmd.Process.Kill()
					t.Fatalf("no %q after two minutes; the terminal shows %.300q", text, shown.String())
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
		if n := shown.Count(hint); n != 1 {
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
