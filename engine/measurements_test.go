package engine

import (
	"os"
	"testing"
)

// TestVerdicts: a verdict is read as it was written; what is no verdict, or
// another key's or build's, is none.
func TestVerdicts(t *testing.T) {
	m := Measurements{Folder: t.TempDir(), Build: "build"}
	if _, known := m.Read("a"); known {
		t.Error("known before it was written")
	}
	for _, want := range []bool{true, false} {
		m.Write("a", want)
		if faster, known := m.Read("a"); !known || faster != want {
			t.Errorf("wrote %v, read %v, known %v", want, faster, known)
		}
	}
	if _, known := m.Read("b"); known {
		t.Error("another key's verdict is taken")
	}
	if _, known := (Measurements{m.Folder, "other"}).Read("a"); known {
		t.Error("another build's verdict is taken")
	}
	path, key := m.path(verdictKind, "a")
	for _, text := range []string{"", "{}", "null", `{"key":"` + key + `"}`, `{"key":"` + key + `","value":null}`, `{"key":"other","value":true}`, "garbage"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, known := m.Read("a"); known {
			t.Errorf("%q is taken for a verdict", text)
		}
	}
	m.Folder = NoFolder
	m.Write("a", true)
	if _, known := m.Read("a"); known {
		t.Error("kept although nothing is to be")
	}
}
