//go:build unix

package testhelp

import (
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/creack/pty"
)

// InTerminal starts a command in a terminal of its own. keys is where somebody types; ended
// is closed when the terminal shows no more.
func InTerminal(t *testing.T, cmd *exec.Cmd) (keys *os.File, shown *Screen, ended <-chan struct{}) {
	t.Helper()
	keys, err := pty.Start(cmd)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	shown = new(Screen)
	done := make(chan struct{})
	go func() { io.Copy(shown, keys); close(done) }()
	return keys, shown, done
}
