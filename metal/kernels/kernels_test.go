package kernels

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestExpand(t *testing.T) {
	files := fstest.MapFS{
		"a.metal":     {Data: []byte("#include <metal_stdlib>\n#include \"x.h.metal\"\n#include \"y.h.metal\"\nint a;\n")},
		"x.h.metal":   {Data: []byte("int x;")},
		"y.h.metal":   {Data: []byte("  #include \"x.h.metal\"\nint y;\n")},
		"bad.metal":   {Data: []byte("\n#include \"none.h.metal\"\n")},
		"cycle.metal": {Data: []byte("#include \"cycle.metal\"\nint c;\n")},
	}
	for _, c := range []struct{ file, want string }{
		{"a.metal", `#line 1 "a.metal"
#include <metal_stdlib>
#line 1 "x.h.metal"
int x;
#line 3 "a.metal"
#line 1 "y.h.metal"
#line 2 "y.h.metal"
int y;
#line 4 "a.metal"
int a;
`},
		{"cycle.metal", "#line 1 \"cycle.metal\"\n#line 2 \"cycle.metal\"\nint c;\n"},
	} {
		got, err := expand(files, c.file)
		if err != nil {
			t.Fatal(err)
		}
		if got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.file, got, c.want)
		}
	}
	if _, err := expand(files, "bad.metal"); err == nil || !strings.Contains(err.Error(), "bad.metal:2") || !strings.Contains(err.Error(), "none.h.metal") {
		t.Errorf("a missing file: %v", err)
	}
}

func TestSources(t *testing.T) {
	names := Names()
	if !slices.IsSorted(names) {
		t.Errorf("names are not in order: %v", names)
	}
	for _, name := range names {
		text, err := Source(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if strings.Contains(text, "#include \"") {
			t.Errorf("%s: an include is not expanded", name)
		}
	}
	if _, err := Source("no_such_library"); err == nil {
		t.Error("a library that is not there: no error")
	}
}
