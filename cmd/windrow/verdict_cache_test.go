package main

import (
	"os"
	"testing"
)

// TestVerdictCache: a verdict is read as it was written; what is no verdict, or
// another key's, is none.
func TestVerdictCache(t *testing.T) {
	t.Setenv(cacheVariable, t.TempDir())
	var c verdictCache
	if _, known := c.Read("a"); known {
		t.Error("known before it was written")
	}
	for _, want := range []bool{true, false} {
		c.Write("a", want)
		if faster, known := c.Read("a"); !known || faster != want {
			t.Errorf("wrote %v, read %v, known %v", want, faster, known)
		}
	}
	if _, known := c.Read("b"); known {
		t.Error("another key's verdict is taken")
	}
	path := cachePath("verdict", versionLine()+" a")
	for _, text := range []string{"", "{}", "null", `{"key":"` + versionLine() + ` a"}`, `{"key":"other","faster":true}`, "garbage"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, known := c.Read("a"); known {
			t.Errorf("%q is taken for a verdict", text)
		}
	}
	t.Setenv(cacheVariable, "off")
	c.Write("a", true)
	if _, known := c.Read("a"); known {
		t.Error("kept although the cache is off")
	}
}
