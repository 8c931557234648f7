package filelock

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// TestTryLock: one opener at a time, until it closes; the file is read and
// written as any other meanwhile.
func TestTryLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	first, second := open(), open()
	if err := TryLock(first); err != nil {
		t.Fatal(err)
	}
	err := TryLock(second)
	if err == nil && runtime.GOOS != "linux" && runtime.GOOS != "darwin" && runtime.GOOS != "windows" {
		t.Skipf("no file locks on %s", runtime.GOOS)
	}
	if !errors.Is(err, ErrHeld) {
		t.Fatalf("a second opener: %v, want %v", err, ErrHeld)
	}
	if _, err := first.WriteString("first"); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "first" {
		t.Errorf("read %q, %v", data, err)
	}
	first.Close()
	if err := TryLock(second); err != nil {
		t.Errorf("after the first has closed: %v", err)
	}
}
