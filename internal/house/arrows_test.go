package house

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

const module = "windrow/"

// layersOf lists the packages under "Layers" of docs/architecture.md, from the top down.
func layersOf(text string) (layers []string) {
	_, text, _ = strings.Cut(text, "\n## Layers\n")
	text, _, _ = strings.Cut(text, "\n## ")
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, "    ")
		if !ok || strings.HasPrefix(rest, " ") {
			continue
		}
		words := strings.Split(strings.TrimSpace(rest), "  ")
		for _, w := range words {
			if w == "" || strings.Contains(w, " ") { // what it holds begins
				break
			}
			layers = append(layers, w)
		}
	}
	return layers
}

// layerOf is the place of a package, or of the nearest one above it in the tree, in the
// list; -1: neither is there.
func layerOf(layers []string, folder string) int {
	for ; folder != "."; folder = path.Dir(folder) {
		if i := slices.Index(layers, folder); i >= 0 {
			return i
		}
	}
	return -1
}

// upward lists the imports of a tree that do not point down.
func upward(tree fs.FS, layers []string) (wrong []string, arrows int, err error) {
	imports := map[string][]string{}
	tests := map[string]bool{} // packages for tests alone
	err = fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base := entry.Name(); entry.IsDir() && name != "." && (strings.HasPrefix(base, ".") || base == "testdata") {
			return fs.SkipDir
		}
		if entry.IsDir() && name != "." {
			if _, err := fs.Stat(tree, name+"/go.mod"); err == nil {
				return fs.SkipDir // another module
			}
		}
		if entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		source, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ImportsOnly)
		if err != nil {
			return err
		}
		folder := path.Dir(name)
		for _, i := range file.Imports {
			what := strings.Trim(i.Path.Value, `"`)
			if what == "testing" {
				tests[folder] = true
			}
			if to, ours := strings.CutPrefix(what, module); ours {
				imports[folder] = append(imports[folder], to)
			}
		}
		return nil
	})
	for from, list := range imports {
		if tests[from] || strings.HasPrefix(from, "scripts/") {
			continue
		}
		for _, to := range list {
			arrows++
			a, b := layerOf(layers, from), layerOf(layers, to)
			switch {
			case tests[to]:
				wrong = append(wrong, from+" imports "+to+", which is for tests alone")
			case a < 0 || b < 0:
				wrong = append(wrong, from+" imports "+to+": one of them is in no layer")
			case a > b:
				wrong = append(wrong, from+" imports "+to+", which is above it")
			}
		}
	}
	slices.Sort(wrong)
	return slices.Compact(wrong), arrows, err
}

// TestArrowsPointDown compares what imports what with the layers that the docs list.
func TestArrowsPointDown(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root + "/docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	layers := layersOf(string(text))
	wrong, arrows, err := upward(os.DirFS(root), layers)
	if err != nil {
		t.Fatal(err)
	}
	if len(layers) < 30 || arrows < 100 {
		t.Errorf("%d layers and %d imports were found", len(layers), arrows)
	}
	for _, w := range wrong {
		t.Error(w)
	}
	for _, l := range layers {
		if info, err := os.Stat(root + "/" + l); err != nil || !info.IsDir() {
			t.Errorf("docs/architecture.md lists %s, which is no folder", l)
		}
	}
}

func TestUpward(t *testing.T) {
	t.Parallel()
	layers := layersOf("# x\n\n## Layers\n\nwords\n\n    top          what\n                 more\n    mid  low     what\n    mid/own      what\n\n## Other\n\n    no   what\n")
	if want := []string{"top", "mid", "low", "mid/own"}; !slices.Equal(layers, want) {
		t.Fatalf("layers %q, want %q", layers, want)
	}
	tree := fstest.MapFS{}
	for name, imports := range map[string]string{
		"top/a.go":          `import ("windrow/mid"; "windrow/low/part"; "fmt")`,
		"mid/a.go":          `import "windrow/top"`,
		"mid/a_test.go":     `import "windrow/top"`,
		"mid/own/a.go":      `import "windrow/low"`,
		"low/part/a.go":     `import "windrow/low/suite"`,
		"low/suite/a.go":    `import ("testing"; "windrow/top")`,
		"other/a.go":        `import "windrow/low"`,
		"module/go.mod":     `module x`,
		"module/b/b.go":     `import "windrow/top"`,
		"low/testdata/a.go": `import "windrow/top"`,
	} {
		if strings.HasSuffix(name, ".go") {
			imports = "package x\n" + imports
		}
		tree[name] = &fstest.MapFile{Data: []byte(imports)}
	}
	wrong, arrows, err := upward(tree, layers)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"low/part imports low/suite, which is for tests alone",
		"mid imports top, which is above it",
		"mid/own imports low, which is above it",
		"other imports low: one of them is in no layer",
	}
	if !slices.Equal(wrong, want) || arrows != 6 {
		t.Errorf("%d arrows, wrong %q, want %q", arrows, wrong, want)
	}
}
