package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

// TestWrite: a file is replaced whole; after an error it is as it was, and
// nothing lies beside it.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, content := range []string{"first", "second, longer", ""} {
		if err := Write(path, text(content)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != content {
			t.Errorf("read %q, %v, want %q", got, err, content)
		}
	}
	if err := Write(path, text("kept")); err != nil {
		t.Fatal(err)
	}
	bad := errors.New("bad")
	err := Write(path, func(w io.Writer) error { return errors.Join(text("half of it")(w), bad) })
	if !errors.Is(err, bad) {
		t.Errorf("error %v, want the writer's", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "kept" {
		t.Errorf("after an error: %q, %v", got, err)
	}
	folder := filepath.Join(dir, "folder")
	if err := os.MkdirAll(filepath.Join(folder, "full"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{folder, filepath.Join(dir, "none", "file")} {
		if err := Write(target, text("x")); err == nil {
			t.Errorf("%s: written", target)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A relative name without a folder is written in the working folder.
func TestWriteHere(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := Write("file", text("x")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat("file"); err != nil || info.Mode().Perm()&0o600 != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}
