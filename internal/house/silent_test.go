package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// printers are the parts of the repository that may print: commands, and programs
// that the repository itself runs.
var printers = []string{"cmd", "scripts"}

// TestSilent: nothing that a program imports writes to its standard output or
// error: progress and notes go through callbacks.
func TestSilent(t *testing.T) {
	t.Parallel()
	loud, files, err := printing(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if files < 200 {
		t.Errorf("only %d files were looked at", files)
	}
	for _, line := range loud {
		t.Error(line + ": only commands print")
	}
}

// printing lists where files outside of printers, tests apart, name what prints.
func printing(tree fs.FS) (loud []string, files int, err error) {
	err = fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			base := entry.Name()
			if name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || slices.Contains(printers, name)) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		source, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files++
		for _, what := range printed(file) {
			loud = append(loud, fmt.Sprintf("%s:%d: %s", name, set.Position(what.Pos()).Line, nameOf(what)))
		}
		return nil
	})
	return loud, files, err
}

// printed are the identifiers of a file that print: standard output and error by
// any name of their package, functions that print there, and package log.
func printed(file *ast.File) (found []ast.Expr) {
	imported := map[string]string{} // path by name in the file
	for _, spec := range file.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		imported[name] = p
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if id, ok := n.Fun.(*ast.Ident); ok && (id.Name == "println" || id.Name == "print") {
				found = append(found, id)
			}
		case *ast.SelectorExpr:
			id, ok := n.X.(*ast.Ident)
			if !ok {
				break
			}
			switch p := imported[id.Name]; {
			case p == "os" && (n.Sel.Name == "Stdout" || n.Sel.Name == "Stderr"),
				p == "fmt" && strings.HasPrefix(n.Sel.Name, "Print"),
				p == "log", p == "log/slog" && n.Sel.Name == "Default":
				found = append(found, n)
			}
		}
		return true
	})
	return found
}

func nameOf(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		return s.X.(*ast.Ident).Name + "." + s.Sel.Name
	}
	return e.(*ast.Ident).Name
}

func TestPrinting(t *testing.T) {
	t.Parallel()
	tree := fstest.MapFS{}
	for name, source := range map[string]string{
		"a/stdout.go":     "package a\nimport \"os\"\nvar w = os.Stdout\n",
		"a/stderr.go":     "package a\nimport system \"os\"\nvar w = system.Stderr\n",
		"a/print.go":      "package a\nimport \"fmt\"\nfunc f() { fmt.Println(); fmt.Printf(\"\") }\n",
		"a/builtin.go":    "package a\nfunc f() { println(1) }\n",
		"a/log.go":        "package a\nimport \"log\"\nfunc f() { log.Fatal() }\n",
		"a/quiet.go":      "package a\nimport (\"fmt\"; \"io\"; \"os\")\nfunc f(w io.Writer) { fmt.Fprintln(w, os.Args); fmt.Sprint() }\n",
		"a/own.go":        "package a\nvar log struct{ Fatal func() }\nfunc f() { log.Fatal() }\n",
		"a/a_test.go":     "package a\nfunc f() { println(1) }\n",
		"cmd/x/main.go":   "package main\nfunc main() { println(1) }\n",
		"scripts/x/x.go":  "package main\nfunc main() { println(1) }\n",
		"a/testdata/x.go": "not Go",
	} {
		tree[name] = &fstest.MapFile{Data: []byte(source)}
	}
	got, files, err := printing(tree)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a/builtin.go:2: println", "a/log.go:3: log.Fatal", "a/print.go:3: fmt.Println", "a/print.go:3: fmt.Printf",
		"a/stderr.go:3: system.Stderr", "a/stdout.go:3: os.Stdout"}
	if !slices.Equal(got, want) || files != 7 {
		t.Errorf("of %d files: %q, want %q of 7", files, got, want)
	}
}
