package main

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"windrow/models/tinygsm"
)

// fullDisk is an output that takes nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// TestFullOutput: whatever a command prints, what cannot be written is an
// error in one line.
func TestFullOutput(t *testing.T) {
	commands := [][]string{
		{"--help"}, {"help"}, {"--version"}, {"version"}, {"version", "--json"}, {"help", "eval", "pcache"},
		{"generate", "--help"}, {"eval", "gsm8k", "--help"}, {"chat", "--help"},
	}
	if tinygsm.Available {
		commands = append(commands, []string{"inspect"}, []string{"inspect", "--json"}, []string{"inspect", "--tensors"},
			[]string{"generate", "-n", "1", "hi"}, []string{"generate", "--json", "-n", "1", "hi"})
	}
	for _, args := range commands {
		var stderr bytes.Buffer
		code := run(append([]string{"windrow"}, args...), strings.NewReader(""), fullDisk{}, &stderr)
		if code != exitFailure || strings.Count(stderr.String(), "\n") != 1 || !strings.Contains(stderr.String(), "no space left") {
			t.Errorf("%q: exit code %d, %q, want 1 and one line", args, code, &stderr)
		}
	}
	if full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0); err == nil {
		defer full.Close()
		var stderr bytes.Buffer
		if code := run([]string{"windrow", "version"}, strings.NewReader(""), full, &stderr); code != exitFailure {
			t.Errorf("version > /dev/full: exit code %d, %q", code, &stderr)
		}
	}
}
