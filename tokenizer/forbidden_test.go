package tokenizer

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestSugarmeLoaderIsNotUsed: nothing in the repository may load a tokenizer
// with sugarme's loader, nor give it added tokens or normalizers: they give
// wrong ids (see Sugar).
func TestSugarmeLoaderIsNotUsed(t *testing.T) {
	const module = "github.com/sugarme/tokenizer"
	files := 0
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && path != ".." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules") {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		files++
		for _, use := range forbiddenUses(t, path, nil, module) {
			t.Error(use)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 20 {
		t.Errorf("only %d Go files were looked at", files)
	}
	const bad = `package p
import ("github.com/sugarme/tokenizer/pretrained"; tk "github.com/sugarme/tokenizer")
func f() { t, _ := pretrained.FromFile("x"); t.AddTokens(nil); tk.NewTokenizerFromFile("x"); t.WithNormalizer(nil) }`
	if uses := forbiddenUses(t, "bad.go", bad, module); len(uses) != 4 {
		t.Errorf("a file with four forbidden uses shows %d: %v", len(uses), uses)
	}
}

// forbiddenUses lists the forbidden uses in a file that imports the module.
// Methods are found by name: no other package has any so named.
func forbiddenUses(t *testing.T, path string, source any, module string) []string {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, parser.SkipObjectResolution)
	if err != nil {
		t.Log(err) // the compiler will say so louder
		return nil
	}
	imported := false
	var uses []string
	for _, i := range file.Imports {
		name, _ := strconv.Unquote(i.Path.Value)
		imported = imported || name == module || strings.HasPrefix(name, module+"/")
		if name == module+"/pretrained" {
			uses = append(uses, set.Position(i.Pos()).String()+" imports "+name)
		}
	}
	if !imported {
		return nil
	}
	ast.Inspect(file, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		switch selector.Sel.Name {
		case "NewTokenizerFromFile", "AddTokens", "AddSpecialTokens", "WithNormalizer":
			uses = append(uses, set.Position(selector.Pos()).String()+" uses "+selector.Sel.Name)
		}
		return true
	})
	return uses
}
