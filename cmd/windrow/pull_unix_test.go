//go:build unix

package main

import (
	"bytes"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"windrow/hub/hubtest"
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
