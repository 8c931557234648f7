// Package house has the tests of the repository's form: the width of its docs
// and the comments of its packages. It has nothing to import.
package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// root is the repository, seen from this package.
const root = "../.."

// columns is how wide a line of docs may be. Tables and code may be wider: to
// break their lines would change them.
const columns = 100

// eachDoc calls f with the text of every document.
func eachDoc(t *testing.T, f func(name, text string)) {
	var docs []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, found...)
	}
	if len(docs) < 20 {
		t.Errorf("only %d docs were looked at: %v", len(docs), docs)
	}
	for _, name := range docs {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f(filepath.ToSlash(filepath.Clean(name)), string(text))
	}
}

func TestDocsWidth(t *testing.T) {
	t.Parallel()
	eachDoc(t, func(name, text string) {
		for _, line := range tooWide(text) {
			t.Error(name + ":" + line)
		}
	})
}

// tooWide lists the lines of a Markdown text that are wider than columns, with
// their numbers. A line that is one link cannot be broken.
func tooWide(text string) (lines []string) {
	fenced, code, list, blank := false, false, false, true
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSuffix(line, "\r")
		content := strings.TrimLeft(line, " ")
		indent := len(line) - len(content)
		fence := strings.HasPrefix(content, "```")
		switch {
		case fence || fenced:
			fenced = fenced != fence
			code = false
		case content == "":
			blank = true
			continue
		default:
			if item := isItem(content); item || indent == 0 {
				list = item
			}
			code = indent >= 4 && !list && (code || blank)
			table := strings.HasPrefix(content, "|")
			link := strings.Contains(content, "](") || strings.Contains(content, "://")
			oneWord := len(strings.Fields(strings.TrimLeft(content, "-* "))) == 1
			if n := utf8.RuneCountInString(line); n > columns && !code && !table && !(link && oneWord) {
				lines = append(lines, fmt.Sprintf("%d: has %d columns, want %d at most", i+1, n, columns))
			}
		}
		blank = false
	}
	return lines
}

// isItem reports whether a line begins an item of a list.
func isItem(content string) bool {
	marker, _, _ := strings.Cut(content, " ")
	number := strings.TrimRight(marker, ".)")
	return slices.Contains([]string{"-", "*", "+"}, marker) ||
		number != "" && number != marker && strings.Trim(number, "0123456789") == ""
}

func TestTooWide(t *testing.T) {
	t.Parallel()
	wide := strings.Repeat("word ", 20) + "s" // 101 columns
	link := "[text](" + strings.Repeat("x", 100) + ")"
	for _, c := range []struct {
		name, text string
		lines      int
	}{
		{"100 columns", wide[1:], 0},
		{"100 columns of two bytes each", strings.Repeat("ö", 99) + " ", 0},
		{"a paragraph", wide + "\nshort\n" + wide, 2},
		{"a heading", "# " + wide, 1},
		{"an item and its second line", "- " + wide + "\n  " + wide, 2},
		{"a numbered item", "12. " + wide, 1},
		{"an item's second paragraph, deep", "1. a\n\n    " + wide, 1},
		{"a paragraph's line, indented", "text\n    " + wide, 1},
		{"a table", "| " + wide + " |", 0},
		{"code", "text\n\n    " + wide + "\n    " + wide + "\n\n    " + wide + "\n\n" + wide, 1},
		{"fenced code, and after it", "```\n" + wide + "\n\n" + wide + "\n```\n" + wide, 1},
		{"a link alone", link + "\n- " + link, 0},
		{"a link among words", "see " + link, 1},
	} {
		if got := tooWide(c.text); len(got) != c.lines {
			t.Errorf("%s: %d lines are too wide, want %d: %v", c.name, len(got), c.lines, got)
		}
	}
}

func TestPackageComments(t *testing.T) {
	t.Parallel()
	bare, packages, err := uncommented(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if packages < 20 {
		t.Errorf("only %d packages were looked at", packages)
	}
	for _, name := range bare {
		t.Errorf("%s: no file has a package comment, which begins with \"Package NAME\" or \"Command NAME\"", name)
	}
}

// uncommented lists the folders whose package has no package comment. Files of
// a package's external tests do not count.
func uncommented(tree fs.FS) (bare []string, packages int, err error) {
	commented := map[string]bool{}
	err = fs.WalkDir(tree, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && path != "." && (strings.HasPrefix(name, ".") || name == "testdata") {
			return fs.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		source, err := fs.ReadFile(tree, path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		if !strings.HasSuffix(file.Name.Name, "_test") {
			folder := filepath.ToSlash(filepath.Dir(path))
			commented[folder] = commented[folder] || isPackageComment(file)
		}
		return nil
	})
	for _, folder := range slices.Sorted(maps.Keys(commented)) {
		if !commented[folder] {
			bare = append(bare, folder)
		}
	}
	return bare, len(commented), err
}

// isPackageComment reports whether a file's doc comment is its package's, in
// the form that go doc expects.
func isPackageComment(file *ast.File) bool {
	prefix := "Package " + file.Name.Name + " "
	if file.Name.Name == "main" {
		prefix = "Command "
	}
	return strings.HasPrefix(file.Doc.Text(), prefix)
}
