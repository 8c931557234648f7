// Package testhelp has what the tests of several packages need. It imports no
// other package of the repository, so that any test may use it.
package testhelp

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Folder writes files, by name, to a folder that lasts as long as the test.
func Folder(t testing.TB, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// OneLine fails where an error is absent, has several lines, or lacks one of the
// words. what is the case that gave it.
func OneLine(t testing.TB, what string, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error, want one line with %q", what, words)
		return
	}
	text := err.Error()
	if strings.Contains(text, "\n") {
		t.Errorf("%s: want one line, got:\n%s", what, text)
	}
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%s: error %q does not say %q", what, text, w)
		}
	}
}

// OneLineFrom is OneLine for an error that begins with prefix.
func OneLineFrom(t testing.TB, prefix string, err error, words ...string) {
	t.Helper()
	OneLine(t, prefix+"…", err, words...)
	if err != nil && !strings.HasPrefix(err.Error(), prefix) {
		t.Errorf("error %q does not begin with %q", err, prefix)
	}
}

// JSONNames fails where a value's JSON lacks one of the names, which spaces part, and
// returns the JSON's object.
func JSONNames(t testing.TB, value any, names string) (object map[string]any) {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &object); err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(names) {
		if _, ok := object[name]; !ok {
			t.Errorf("%T has lost %q: %s", value, name, data)
		}
	}
	return object
}
