package house

import (
	"slices"
	"testing"
	"testing/fstest"
)

func TestUncommented(t *testing.T) {
	t.Parallel()
	tree := fstest.MapFS{}
	for name, source := range map[string]string{
		"good/a.go":         "package good\n",
		"good/doc.go":       "// Package good is good.\npackage good\n",
		"cmd/x/main.go":     "// Command x is a command.\npackage main\n",
		"bare/a.go":         "package bare\n",
		"bare/a_test.go":    "// Package bare_test is not the package.\npackage bare_test\n",
		"apart/a.go":        "// Package apart stands apart.\n\npackage apart\n",
		"other/a.go":        "// Package another is named wrongly.\npackage other\n",
		"licence/a.go":      "// All rights are reserved.\npackage licence\n",
		"testdata/a.go":     "not Go",
		".hidden/a.go":      "package hidden\n",
		"testing/a_test.go": "// Package testing has tests alone.\npackage testing\n",
	} {
		tree[name] = &fstest.MapFile{Data: []byte(source)}
	}
	bare, packages, err := uncommented(tree)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"apart", "bare", "licence", "other"}; !slices.Equal(bare, want) || packages != 7 {
		t.Errorf("of %d packages these have no comment: %v; want %v of 7", packages, bare, want)
	}
}
