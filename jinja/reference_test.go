package jinja

import (
	"bufio"
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// reference is Jinja2 itself in a child process: testdata/reference.py.
type reference struct {
	in  io.WriteCloser
	out *bufio.Reader
	mu  sync.Mutex
}

const python = "/usr/bin/python3"

// openReference starts Jinja2, or skips the test with what is missing.
func openReference(t testing.TB) *reference {
	t.Helper()
	if version, err := exec.Command(python, "-c", "import jinja2; print(jinja2.__version__)").Output(); err != nil || !strings.HasPrefix(string(version), "3.1.") {
		t.Skipf("not compared with Jinja2: %s with python3-jinja2 3.1 is missing (%q, %v)", python, strings.TrimSpace(string(version)), err)
	}
	cmd := exec.Command(python, "testdata/reference.py")
	r := &reference{}
	var err error
	if r.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.in.Close()
		_ = cmd.Wait()
	})
	if _, err := r.out.ReadString('\n'); err != nil { // its version
		t.Fatal(err)
	}
	return r
}

// render asks Jinja2 for a template's text.
func (r *reference) render(t testing.TB, template string, variables json.RawMessage) goldenAnswer {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	question, err := json.Marshal(map[string]any{"template": template, "vars": variables})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.in.Write(append(question, '\n')); err != nil {
		t.Fatal(err)
	}
	line, err := r.out.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var a goldenAnswer
	if err := json.Unmarshal(line, &a); err != nil {
		t.Fatal(err)
	}
	return a
}
