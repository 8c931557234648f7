package testhelp

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// counter counts failures and does not pass them on.
type counter struct {
	testing.TB
	failures int
}

func (c *counter) Helper()               {}
func (c *counter) Errorf(string, ...any) { c.failures++ }

func TestOneLine(t *testing.T) {
	for _, tc := range []struct {
		err      error
		words    []string
		failures int
	}{
		{errors.New("cuda: no GPU"), []string{"GPU", "no"}, 0},
		{errors.New("cuda: no GPU"), []string{"GPU", "two", "three"}, 2},
		{errors.New("cuda: no\nGPU"), []string{"GPU"}, 1},
		{nil, []string{"GPU", "no"}, 1},
		{nil, nil, 1},
	} {
		c := &counter{TB: t}
		OneLine(c, "a case", tc.err, tc.words...)
		if c.failures != tc.failures {
			t.Errorf("%v with %q: %d failures, want %d", tc.err, tc.words, c.failures, tc.failures)
		}
		c = &counter{TB: t}
		if OneLineFrom(c, "cuda: ", tc.err, tc.words...); c.failures != tc.failures {
			t.Errorf("%v from cuda with %q: %d failures, want %d", tc.err, tc.words, c.failures, tc.failures)
		}
		c = &counter{TB: t}
		if OneLineFrom(c, "metal: ", tc.err, tc.words...); tc.err != nil && c.failures != tc.failures+1 {
			t.Errorf("%v from metal with %q: %d failures, want %d", tc.err, tc.words, c.failures, tc.failures+1)
		}
	}
}

func TestFolder(t *testing.T) {
	dir := Folder(t, map[string][]byte{"a": []byte("1"), "b": nil})
	for name, want := range map[string]string{"a": "1", "b": ""} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != want {
			t.Errorf("%s: %q, %v, want %q", name, data, err, want)
		}
	}
}

// TestTook: work counts, and that others have the processor does not.
func TestTook(t *testing.T) {
	if took := Took(func() { time.Sleep(100 * time.Millisecond) }); took > 100*time.Millisecond && runtime.GOOS != "windows" {
		t.Errorf("to sleep 100 ms takes %v", took)
	}
	x, began := uint64(1), ProcessorTime()
	took := Took(func() {
		for ProcessorTime()-began < 20*time.Millisecond {
			x = x*6364136223846793005 + 1442695040888963407
		}
	})
	if took < 10*time.Millisecond {
		t.Errorf("20 ms of work take %v (%d)", took, x)
	}
}
