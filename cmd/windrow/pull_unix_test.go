//go:build unix

package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"windrow/hub/hubtest"
	"windrow/internal/testhelp"
	"windrow/models/tinygsm"
)

// TestPullInterrupted: ctrl-C ends a pull with what is kept, and the same command goes on
// from there.
func TestPullInterrupted(t *testing.T) {
	if !tinygsm.Available {
		t.Skip("built without the embedded model")
	}
	h := hubtest.New(t, false)
	h.Add("me/tiny", hubtest.Commit("1234"), tinygsm.Files())
	t.Setenv("HF_HUB_CACHE", t.TempDir())
	t.Setenv("HF_ENDPOINT", h.URL)
	t.Setenv("HF_HUB_OFFLINE", "")
	var once sync.Once
	h.Lie(func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		if !strings.HasPrefix(r.URL.Path, "/signed/") || !strings.Contains(r.URL.Path, "model") {
			next(w, r)
			return
		}
		w.Header().Set("Content-Length", "1")
		w.WriteHeader(http.StatusTooManyRequests) // it will be asked again, and never get on
		once.Do(func() { syscall.Kill(os.Getpid(), syscall.SIGINT) })
	})
	var out, errs bytes.Buffer
	if code := run([]string{"windrow", "pull", "hf:me/tiny"}, strings.NewReader(""), &out, &errs); code != exitInterrupted || !strings.Contains(errs.String(), "windrow: interrupted: kept ") || !strings.Contains(errs.String(), "the same command goes on\n") {
		t.Fatalf("exit code %d, want %d: %s", code, exitInterrupted, errs.String())
	}
	h.Lie(nil)
	errs.Reset()
	if code := run([]string{"windrow", "pull", "hf:me/tiny"}, strings.NewReader(""), &out, &errs); code != 0 {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}

// TestPullBar: in a terminal there is one bar, that never goes back, also where bytes are
// lost; with HF_HUB_DISABLE_PROGRESS_BARS there is none.
func TestPullBar(t *testing.T) {
	h := hubtest.New(t, false)
	content := make([]byte, 4<<20)
	copy(content, "GGUF")
	h.Add("me/big", hubtest.Commit("1234"), map[string][]byte{"m.gguf": content})
	var asked atomic.Int64
	// A server without ranges, that breaks off once: not where it is asked for the beginning.
	h.Lie(func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		r.Header.Del("Range")
		if strings.HasPrefix(r.URL.Path, "/signed/") {
			broken := asked.Add(1) == 2
			w.Header().Set("Content-Length", "4194304")
			for i := range 32 {
				if broken && i == 20 {
					panic(http.ErrAbortHandler)
				}
				w.Write(content[i*128<<10 : (i+1)*128<<10])
				w.(http.Flusher).Flush()
				time.Sleep(50 * time.Millisecond)
			}
			return
		}
		next(w, r)
	})
	for _, disable := range []string{"", "1"} {
		cmd := exec.Command("windrow", "pull", "hf:me/big")
		cmd.Env = append(os.Environ(), "HF_HUB_CACHE="+t.TempDir(), "HF_ENDPOINT="+h.URL, "HF_HUB_OFFLINE=", "HF_HUB_DISABLE_PROGRESS_BARS="+disable)
		keys, shown, done := testhelp.InTerminal(t, cmd)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %s", err, shown.String())
		}
		<-done
		keys.Close()
		bars := regexp.MustCompile(`(\d+)% \|`).FindAllStringSubmatch(shown.String(), -1)
		if (disable == "") != (len(bars) > 3) || disable != "" && len(bars) > 0 {
			t.Errorf("HF_HUB_DISABLE_PROGRESS_BARS=%s: %d pictures of the bar: %.500q", disable, len(bars), shown.String())
		}
		last := 0
		for _, b := range bars {
			percent, err := strconv.Atoi(b[1])
			if err != nil || percent < last {
				t.Errorf("the bar goes back from %d to %d %%: %.2000q", last, percent, shown.String())
			}
			last = percent
		}
	}
}

// TestPullFrom: a machine without the Hub takes a model from another Windrow, with a key, and
// runs it; with --peers the Hub says what it is, and the other gives bytes of it.
func TestPullFrom(t *testing.T) {
	h := hubtest.New(t, false)
	h.Add("me/tiny", hubtest.Commit("1234"), tinygsm.Files())
	theirs, keys := t.TempDir(), filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, fmt.Appendf(nil, "peer:%x\n", sha256.Sum256([]byte("of-the-peer"))), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HF_ENDPOINT", h.URL)
	t.Setenv("HF_HUB_OFFLINE", "")
	t.Setenv("HF_HUB_CACHE", theirs)
	windrow := func(args ...string) (code int, stdout, stderr string) {
		var out, errs bytes.Buffer
		code = run(append([]string{"windrow"}, args...), strings.NewReader(""), &out, &errs)
		return code, out.String(), errs.String()
	}
	if code, _, errs := windrow("pull", "hf:me/tiny"); code != 0 {
		t.Fatal(errs)
	}
	s := startServe(t, "--listen", "127.0.0.1:0", "--share", "--api-key-file", keys)
	address := strings.TrimPrefix(s.url, "http://")
	t.Setenv("HF_HUB_CACHE", t.TempDir())
	t.Setenv("HF_TOKEN", "hf_ofthehub")
	h.Forget()
	for key, want := range map[string]string{"": "wants a key", "another": "wants a key"} {
		t.Setenv("WINDROW_API_KEY", key)
		if code, _, errs := windrow("pull", "--from", address, "hf:me/tiny"); code != 1 || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("key %q: %d %s", key, code, errs)
		}
	}
	t.Setenv("WINDROW_API_KEY", "of-the-peer")
	code, _, errs := windrow("pull", "--from", address, "hf:me/nobody")
	if code != 1 || !strings.Contains(errs, "does not share me/nobody") || strings.Count(errs, "\n") != 1 {
		t.Errorf("not there: %d %s", code, errs)
	}
	if code, _, errs := windrow("pull", "--from", address, "hf:me/tiny"); code != 0 || len(h.Requests()) > 0 {
		t.Errorf("%d %s, %d requests to the Hub", code, errs, len(h.Requests()))
	}
	if code, out, errs := windrow("generate", "--server", "off", "--model", "hf:me/tiny", "--max-tokens", "4", "What is 17 + 25?"); code != 0 || out == "" {
		t.Errorf("generate: %d %s%s", code, out, errs)
	}
	if code, out, _ := windrow("list"); code != 0 || !strings.Contains(out, "verified, http://"+address) {
		t.Errorf("list: %s", out)
	}
	t.Setenv("HF_HUB_CACHE", t.TempDir())
	h.Lie(func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		if strings.HasPrefix(r.URL.Path, "/signed/") {
			time.Sleep(500 * time.Millisecond)
		}
		if a := r.Header.Get("Authorization"); strings.Contains(a, "of-the-peer") {
			t.Errorf("the Hub was sent %q", a)
		}
		next(w, r)
	})
	if code, _, errs := windrow("pull", "--peers", address, "hf:me/tiny"); code != 0 || !strings.Contains(errs, " came from peers\n") {
		t.Errorf("--peers: %d %s", code, errs)
	}
	if code := s.end(t, syscall.SIGTERM); code != 0 {
		t.Errorf("the peer: exit code %d", code)
	}
}
