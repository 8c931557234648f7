//go:build unix

package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"windrow/models/tinygsm"
)

// strangeFiles are what may stand where a regular file is wanted; each is put
// at path, with the file that was there as good. ok: what is there is fine.
var strangeFiles = []struct {
	name string
	make func(path, good string) error
	want string // in the error; "": it is fine
}{
	{"a pipe", func(path, _ string) error { return syscall.Mkfifo(path, 0o644) }, "found a named pipe"},
	{"a folder", func(path, _ string) error { return os.Mkdir(path, 0o755) }, "found a folder"},
	{"a socket", func(path, _ string) error {
		l, err := net.Listen("unix", path)
		if err == nil {
			l.(*net.UnixListener).SetUnlinkOnClose(false)
			err = l.Close()
		}
		return err
	}, "found a socket"},
	{"a link to a device", func(path, _ string) error { return os.Symlink("/dev/zero", path) }, "link out of the model's folder"},
	{"a link out", func(path, good string) error { return os.Symlink(good, path) }, "link out of the model's folder"},
	{"a link in", func(path, good string) error {
		data, err := os.ReadFile(good)
		if err == nil {
			err = os.WriteFile(path+".target", data, 0o644)
		}
		if err != nil {
			return err
		}
		return os.Symlink(filepath.Base(path)+".target", path)
	}, ""},
	{"a link to a pipe", func(path, _ string) error {
		if err := syscall.Mkfifo(path+".pipe", 0o644); err != nil {
			return err
		}
		return os.Symlink(filepath.Base(path)+".pipe", path)
	}, "found a named pipe"},
	{"a loop", func(path, _ string) error { return os.Symlink(filepath.Base(path), path) }, "too many links"},
	{"a link to nothing", func(path, _ string) error { return os.Symlink("nothing", path) }, "link to a file that is missing"},
	{"a huge file of nothing", func(path, _ string) error {
		f, err := os.Create(path)
		if err == nil {
			err = f.Truncate(1 << 40)
			f.Close()
		}
		return err
	}, ": "},
}

// within runs the program here, and fails where it does not end.
func runWithin(t *testing.T, args ...string) (code int, stderr string) {
	t.Helper()
	done := make(chan struct{})
	var out, errs bytes.Buffer
	go func() {
		defer close(done)
		code = run(append([]string{"windrow"}, args...), strings.NewReader(""), &out, &errs)
	}()
	select {
	case <-done:
		return code, errs.String()
	case <-time.After(2 * time.Minute):
		t.Fatalf("%q does not end", args)
	}
	return 0, ""
}

// TestStrangeFiles: whatever stands in the place of a model's file, each kind
// of file is answered in one line that names it, at once.
func TestStrangeFiles(t *testing.T) {
	if !tinygsm.Available {
		t.Skip("built without the embedded model")
	}
	good := t.TempDir()
	for name, data := range tinygsm.Files() {
		if err := os.WriteFile(filepath.Join(good, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range map[string]string{
		"chat_template.jinja":    `{{ messages[0].content }}`,
		"generation_config.json": `{"eos_token_id": 4094}`,
	} {
		if err := os.WriteFile(filepath.Join(good, name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	names, err := os.ReadDir(good)
	if err != nil || len(names) < 8 {
		t.Fatalf("%v, %v: want 8 kinds of files", names, err)
	}
	check := func(t *testing.T, model, named, want string) {
		t.Helper()
		code, stderr := runWithin(t, "generate", "--backend", "cpu", "--threads", "1", "--mode", "ar", "-n", "1", "--model", model, "hi")
		switch {
		case want == "" && code != exitOK:
			t.Errorf("exit code %d, %q", code, stderr)
		case want != "" && (code != exitFailure || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, named) || !strings.Contains(stderr, want)):
			t.Errorf("exit code %d, %q, want one line that names %s and says %q", code, stderr, named, want)
		}
	}
	for _, strange := range strangeFiles {
		for _, entry := range names {
			t.Run(strange.name+" as "+entry.Name(), func(t *testing.T) {
				dir, err := os.MkdirTemp("", "m") // a socket's path must be short
				if err != nil {
					t.Fatal(err)
				}
				defer os.RemoveAll(dir)
				for _, other := range names {
					to := filepath.Join(dir, other.Name())
					if other == entry {
						err = strange.make(to, filepath.Join(good, other.Name()))
					} else {
						err = os.Link(filepath.Join(good, other.Name()), to)
					}
					if err != nil {
						t.Skipf("cannot be made here: %v", err)
					}
				}
				check(t, dir, filepath.Join(dir, entry.Name()), strange.want)
			})
		}
		t.Run(strange.name+" as the model itself", func(t *testing.T) {
			dir, err := os.MkdirTemp("", "m")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			path, want := filepath.Join(dir, "model.gguf"), ": "
			if err := strange.make(path, filepath.Join(good, "config.json")); err != nil {
				t.Skipf("cannot be made here: %v", err)
			}
			check(t, path, path, want)
		})
	}
}

// TestInterruptWhileReading: ctrl-C and SIGTERM end the program at once while
// it waits for something that never comes.
func TestInterruptWhileReading(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "problems.jsonl")
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Skipf("no pipes here: %v", err)
	}
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		for _, args := range [][]string{
			{"generate", "-"},
			{"bench", "--threads", "1", "--data", pipe},
		} {
			t.Run(fmt.Sprint(signal, " ", args[0]), func(t *testing.T) {
				if args[0] == "bench" && !tinygsm.Available {
					t.Skip("built without the embedded model")
				}
				cmd := exec.Command("windrow", args...)
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				stdin, err := cmd.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				defer stdin.Close()
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				if args[0] == "generate" {
					// More than a pipe holds: it reads.
					if _, err := io.WriteString(stdin, strings.Repeat("x", 1<<20)); err != nil {
						t.Fatal(err)
					}
				} else {
					writer, err := os.OpenFile(pipe, os.O_WRONLY, 0) // once it has opened the other end
					if err != nil {
						t.Fatal(err)
					}
					defer writer.Close()
				}
				if err := cmd.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
				ended := make(chan struct{})
				go func() { cmd.Wait(); close(ended) }()
				select {
				case <-ended:
				case <-time.After(2 * time.Minute):
					cmd.Process.Kill()
					<-ended
					t.Fatal("does not end")
				}
				if code := cmd.ProcessState.ExitCode(); code != exitInterrupted || stderr.String() != "windrow: interrupted\n" {
					t.Errorf("exit code %d, %q", code, &stderr)
				}
			})
		}
	}
}
