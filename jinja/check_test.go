package jinja

import (
	"strings"
	"testing"
)

// checkError fails on errors that are no short line, or of a fault of our own.
func checkError(t testing.TB, source string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	line := err.Error()
	if strings.Contains(line, "internal error") || len(line) > 400 || strings.ContainsFunc(line, func(r rune) bool { return !isPrintable(r) }) {
		t.Errorf("%.300q: error %q", source, line)
	}
}
