//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"windrow/models/tinygsm"
)

// household is a user's folders, with a server of their own.
type household struct {
	t      *testing.T
	folder string
	env    []string
}

func newHousehold(t *testing.T) *household {
	t.Helper()
	if !tinygsm.Available {
		t.Skip("built without the embedded model")
	}
	folder, err := os.MkdirTemp("", "w")
	if err != nil {
		t.Fatal(err)
	}
	h := &household{t: t, folder: folder}
	h.env = append(os.Environ(), "XDG_RUNTIME_DIR="+folder, "XDG_STATE_HOME="+folder, cacheVariable+"="+filepath.Join(folder, "cache"))
	t.Cleanup(func() {
		h.run("stop", "--now")
		os.RemoveAll(folder)
	})
	return h
}

func (h *household) socket() string { return filepath.Join(h.folder, "windrow", "sock") }

// command is the program with arguments.
func (h *household) command(args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	return &exec.Cmd{Path: self, Args: append([]string{"windrow"}, args...), Env: h.env}
}

// run runs the program to its end.
func (h *household) run(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	c := h.command(args...)
	c.Stdout, c.Stderr = &out, &err
	c.Run()
	return c.ProcessState.ExitCode(), out.String(), err.String()
}

// want runs the program and compares its exit code and what it says.
func (h *household) want(code int, stdout, stderr string, args ...string) {
	h.t.Helper()
	got, out, err := h.run(args...)
	if got != code || !strings.Contains(out, stdout) || !strings.Contains(err, stderr) || stderr == "" && err != "" {
		h.t.Errorf("%v: exit code %d, %q, %q; want %d, %q, %q", args, got, out, err, code, stdout, stderr)
	}
}

// client talks to the household's server.
func (h *household) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", h.socket())
	}}}
}

// TestDaemon: a server in the background from its start to its end.
func TestDaemon(t *testing.T) {
	h := newHousehold(t)
	h.want(3, "stopped", "", "status")
	h.want(1, "", "no server is running", "ps")
	h.want(0, "", "no server is running", "stop")
	h.want(0, "tiny-gsm; log "+h.folder, "", "start")
	h.want(0, "ready, unix:"+h.socket()+", pid ", "", "status")
	h.want(0, `"state": "ready"`, "", "status", "--json")
	h.want(1, "", "start: a server is already running there, pid ", "start")
	h.want(1, "", "already running there, pid ", "serve", "--listen", "unix:")
	h.want(0, "tiny-gsm  loaded  0 of 32", "", "ps")
	h.want(0, `"kv_pages_limit": `, "", "ps", "--json")
	h.want(0, "1 of 1 models loaded, 0 requests run", "", "top")
	h.want(2, "", "want a Unix socket", "stop", "--server", "127.0.0.1:1")
	h.want(0, "", "windrow: stopped, pid ", "stop")
	h.want(3, "stopped", "", "status")
	if _, err := os.Lstat(h.socket()); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
	h.want(1, "", "start: model "+filepath.Join(h.folder, "none"), "start", "--model", filepath.Join(h.folder, "none"))
	h.want(2, "", "--sequences 0", "start", "--sequences", "0")
}

// TestTopJSON: a line a look, until it is interrupted.
func TestTopJSON(t *testing.T) {
	h := newHousehold(t)
	h.want(0, "tiny-gsm", "", "start")
	c := h.command("top", "--json", "--interval", "20ms")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var lines [3]byte
	for i := range lines {
		var line []byte
		for b := make([]byte, 1); b[0] != '\n'; line = append(line, b[0]) {
			if _, err := out.Read(b); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.HasPrefix(line, []byte(`{"total":32`)) {
			t.Errorf("line %d: %s", i, line)
		}
	}
	c.Process.Signal(syscall.SIGINT)
	c.Wait()
	if code := c.ProcessState.ExitCode(); code != exitInterrupted {
		t.Errorf("exit code %d", code)
	}
}

// TestStartsAtOnce: one of them is the server, the others say so.
func TestStartsAtOnce(t *testing.T) {
	h := newHousehold(t)
	var all sync.WaitGroup
	var mutex sync.Mutex
	outcomes := map[string]int{}
	for range 4 {
		all.Go(func() {
			code, out, err := h.run("start")
			what := fmt.Sprint(code, out, err)
			switch {
			case code == 0 && strings.Contains(out, "tiny-gsm"):
				what = "started"
			case code == 1 && strings.Contains(err, "already running there") && strings.Count(err, "\n") == 1:
				what = "already running"
			}
			mutex.Lock()
			outcomes[what]++
			mutex.Unlock()
		})
	}
	all.Wait()
	if outcomes["started"] != 1 || outcomes["already running"] != 3 {
		t.Errorf("%v", outcomes)
	}
	h.want(0, "ready", "", "status")
}

// TestAnswersByServer: generate and chat print the same with a server as without, byte
// for byte, and use it only where they are to.
func TestAnswersByServer(t *testing.T) {
	h := newHousehold(t)
	const chairs = "A hall has 5 rows with 9 chairs in each row. How many chairs are there?"
	const line = "tiny-gsm answers, at unix:"
	commands := []struct {
		args []string
		used bool
	}{
		{[]string{chairs}, true},
		{[]string{"--mode", "ar", chairs}, true},
		{[]string{"--mode", "wedlm", chairs}, true},
		{[]string{"--mode", "wedlm", "--window", "4", chairs}, true},
		{[]string{"--mode", "verified", "--window", "3", "-n", "7", chairs}, true},
		{[]string{"-t", "0.9", "--seed", "7", "--top-k", "40", "--top-p", "0.95", "--min-p", "0.01", chairs}, true},
		{[]string{"-t", "1.3", "--seed", "8", "--repetition-penalty", "1.1", "--presence-penalty", "0.5", "--frequency-penalty", "0.25", chairs}, true},
		{[]string{"--stop", "####", "--stop", "never, ever", chairs}, true},
		{[]string{"--logit-bias", "42=-100", "--logit-bias", "43=3.5", chairs}, true},
		{[]string{"--system", "Be brief.", chairs}, true},
		{[]string{"--raw", "Q: 3 + 4 = <|im_end|> 5"}, true},
		{[]string{"--raw", "-n", "40", "ü ∑ 漢字 \U0001f600"}, true},
		{[]string{"--draft", "lookup", chairs}, true},
		{[]string{"--draft", "none", chairs}, true},
		{[]string{"--mode", "verified", "--draft", "mask", "--window", "8", chairs}, true},
		{[]string{"--draft", "mtp", chairs}, false}, // refused: the model says so
		{[]string{"--draft", "model:tiny-gsm", chairs}, false},
		{[]string{"--draft", "lookup", "--drafts", "2", chairs}, false},
		{[]string{"--exact", chairs}, false},
		{[]string{"--kv-dtype", "f32", chairs}, false},
		{[]string{"--threads", "1", chairs}, false},
		{[]string{"--entropy-threshold", "none", "--mode", "wedlm", chairs}, false},
		{[]string{"--kv-window", "64", chairs}, false},
		{[]string{"-n", "100000", chairs}, false}, // refused: the model says so
		{[]string{"--raw", ""}, false},
		{[]string{"--model", filepath.Join(h.folder, "none"), chairs}, false},
	}
	type outcome struct {
		code        int
		out, errors string
	}
	alone := make([]outcome, len(commands))
	ask := func(i int) (o outcome) {
		o.code, o.out, o.errors = h.run(append([]string{"generate"}, commands[i].args...)...)
		return o
	}
	for i := range commands {
		alone[i] = ask(i)
	}
	messages := "What is 17 + 25?\n/mode ar\nAnd 5 rows of 9 chairs?\n/reset\nWhat is 3 + 4?\n/nonsense\n"
	talk := func(args ...string) (string, string) {
		c := h.command(append([]string{"chat"}, args...)...)
		var out, errs bytes.Buffer
		c.Stdin, c.Stdout, c.Stderr = strings.NewReader(messages), &out, &errs
		if err := c.Run(); err != nil {
			t.Error(err)
		}
		return out.String(), errs.String()
	}
	chatAlone, chatErrors := talk()

	h.want(0, "tiny-gsm", "", "start")
	for i, test := range commands {
		got := ask(i)
		said := strings.Contains(got.errors, line)
		rest := got.errors
		if said {
			_, rest, _ = strings.Cut(got.errors, "\n")
		}
		if got.code != alone[i].code || got.out != alone[i].out || rest != alone[i].errors {
			t.Errorf("%v: %+v\nalone: %+v", test.args, got, alone[i])
		}
		if said != test.used {
			t.Errorf("%v: a server answered %t", test.args, said)
		}
	}
	got, errs := talk()
	first, rest, _ := strings.Cut(errs, "\n")
	if got != chatAlone || rest != chatErrors || !strings.Contains(first, line) {
		t.Errorf("chat: %q %q\nalone: %q %q", got, errs, chatAlone, chatErrors)
	}
	for _, flag := range []string{"--stats", "--json", "--watch", "--server=off"} {
		if code, _, errs := h.run("generate", flag, chairs); code != 0 || strings.Contains(errs, line) {
			t.Errorf("%s: exit code %d, %s", flag, code, errs)
		}
	}
	h.want(0, "#### 45", line, "generate", "--server", h.socket(), chairs)
	h.want(0, "#### 45", line, "generate", "--server", "unix:"+h.socket(), "--model", "tiny-gsm", chairs)
	h.want(2, "", "--stats", "generate", "--server", "unix:", "--stats", chairs)
	h.want(2, "", "--backend", "generate", "--server", "unix:", "--backend", "cpu", chairs)
	h.want(1, "", "no model", "generate", "--server", "unix:", "--model", "other", chairs)
	h.want(0, "#### 45", line, "generate", "--server", "unix:", "--draft", "lookup", chairs)
	h.want(2, "", "the server says: draft: draft mtp: tiny-gsm has no head for drafts (status 400)", "generate", "--server", "unix:", "--draft", "mtp", chairs)
	h.want(2, "", "a server cannot do what --draft model:x asks for", "generate", "--server", "unix:", "--draft", "model:x", chairs)
	h.want(2, "", "--drafts", "generate", "--server", "unix:", "--draft", "lookup", "--drafts", "2", chairs)
	h.want(1, "", "context", "generate", "--server", "unix:", "-n", "100000", chairs)
	h.want(0, "", "windrow: stopped", "stop")
	h.want(1, "", "no server is running", "generate", "--server", "unix:", chairs)

	// One that keeps its text to itself, and one of another arithmetic.
	h.want(0, "", "", "start", "--exact")
	if code, out, errs := h.run("generate", chairs); code != 0 || out != alone[0].out || strings.Contains(errs, line) {
		t.Errorf("an exact server: %d %q %q", code, out, errs)
	}
	h.want(0, alone[18].out, line, "generate", "--exact", chairs)
}

// TestServerGoes: a conversation goes on with the model itself when the server ends.
func TestServerGoes(t *testing.T) {
	h := newHousehold(t)
	h.want(0, "tiny-gsm", "", "start")
	c := h.command("chat")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	c.Stderr = &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var got []byte
	until := func(text string) {
		t.Helper()
		for b := make([]byte, 1); !strings.Contains(string(got), text); {
			if _, err := out.Read(b); err != nil {
				t.Fatalf("%v after %q, %q", err, got, errs.String())
			}
			got = append(got, b[0])
		}
	}
	io.WriteString(in, "A hall has 5 rows with 9 chairs in each row. How many chairs are there?\n")
	until("#### 45\n")
	h.want(0, "", "stopped", "stop")
	got = nil
	io.WriteString(in, "A hall has 6 rows with 9 chairs in each row. How many chairs are there?\n")
	until("####")
	in.Close()
	io.Copy(io.Discard, out)
	if err := c.Wait(); err != nil || !strings.Contains(errs.String(), "the model is loaded here") {
		t.Errorf("%v %q", err, errs.String())
	}
}

// TestStopNow ends a request that runs; stop waits for it.
func TestStopNow(t *testing.T) {
	for _, now := range []bool{false, true} {
		h := newHousehold(t)
		h.want(0, "tiny-gsm", "", "start", "--drain", "5m")
		tokens := 400
		if now {
			tokens = 3500 // it has not ended when the server is told to, on a busy machine either
		}
		body := strings.TrimSuffix(question, "}") + fmt.Sprintf(`,"stream":true,"ignore_eos":true,"max_tokens":%d,"mode":"ar"}`, tokens)
		w, err := h.client().Post("http://x/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Body.Close()
		args := []string{"stop"}
		if now {
			args = append(args, "--now")
		}
		ended := make(chan time.Time)
		go func() {
			h.want(0, "", "stopped", args...)
			ended <- time.Now()
		}()
		data, err := io.ReadAll(w.Body)
		if whole := err == nil && strings.HasSuffix(string(data), "data: [DONE]\n\n"); whole == now {
			t.Errorf("now %t: whole %t, %v", now, whole, err)
		}
		<-ended
		h.want(3, "stopped", "", "status")
	}
}
