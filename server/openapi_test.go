package server

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"windrow/hub"
)

// described are the methods of each path of the file.
func described(t *testing.T) map[string]map[string]any {
	t.Helper()
	var file struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal(openAPIFile, &file); err != nil {
		t.Fatal(err)
	}
	return file.Paths
}

// TestOpenAPIRoutes: the file has every path that the server answers, with its methods,
// and no other.
func TestOpenAPIRoutes(t *testing.T) {
	s := New(fake(t, &script{}), Options{Share: hub.NewShare(&hub.Cache{Root: t.TempDir()}, false)})
	paths := described(t)
	for path, methods := range paths {
		at := s.route(strings.NewReplacer("{model}", "fake/model", "{name}", "talk").Replace(path))
		if at == nil {
			at = s.shareRoute(httptest.NewRequest(http.MethodGet, strings.NewReplacer("{digest}", "abc", "{repo}", "me/tiny", "{revision}", "main").Replace(path), nil))
		}
		if at == nil {
			t.Errorf("%s: the server has no such path", path)
			continue
		}
		if (at.get != nil) != (methods["get"] != nil) || (at.post != nil) != (methods["post"] != nil) || (at.remove != nil) != (methods["delete"] != nil) {
			t.Errorf("%s: the file has other methods than the server", path)
		}
	}
	for _, path := range routed(t, "server.go", "route", "{model}") {
		if paths[path] == nil && paths["/v1"+path] == nil {
			t.Errorf("%s: the file does not have it", path)
		}
	}
	for _, prefix := range routed(t, "share.go", "shareRoute", "") {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(paths)), func(path string) bool { return strings.HasPrefix(path, prefix) }) {
			t.Errorf("%s: the file does not have it", prefix)
		}
	}
}

// routed are the paths in the source of a method of the server; what is cut off has a
// parameter behind it.
func routed(t *testing.T, source, method, parameter string) (paths []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	add := func(e ast.Expr) {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			path, _ := strconv.Unquote(lit.Value)
			if path == "" {
				path = "/"
			}
			paths = append(paths, path)
		}
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != method {
			continue
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CaseClause:
				for _, e := range n.List {
					add(e)
				}
			case *ast.AssignStmt:
				call, ok := n.Rhs[0].(*ast.CallExpr)
				if ok && len(n.Lhs) == 2 && len(call.Args) == 2 {
					if lit, ok := call.Args[1].(*ast.BasicLit); ok {
						path, _ := strconv.Unquote(lit.Value)
						paths = append(paths, path+parameter)
					}
				}
			}
			return true
		})
	}
	if method == "route" && (len(paths) < 12 || !slices.Contains(paths, "/models/{model}")) || len(paths) < 2 {
		t.Fatalf("the source has another form: %q", paths)
	}
	return paths
}

// TestOpenAPIServed: the file is JSON at its path, for everybody.
func TestOpenAPIServed(t *testing.T) {
	w, data := ask(t, serving(t, &script{}, Options{}), "GET", "/openapi.json", "")
	if w.StatusCode != 200 || w.Header.Get("Content-Type") != "application/json" || object(t, data)["openapi"] != "3.1.0" {
		t.Errorf("%d %.100s", w.StatusCode, data)
	}
}

// exchanges are what the tests of this package asked and got, for the module clients,
// whose tests compare it with the file: WINDROW_EXCHANGES names where they go.
var exchanges struct {
	sync.Mutex
	file *os.File
}

// exchange is one of them.
type exchange struct {
	Method  string      `json:"method"`
	Path    string      `json:"path"`
	Request string      `json:"request"`
	Status  int         `json:"status"`
	Header  http.Header `json:"header"`
	Reply   string      `json:"reply"`
}

// keep writes an exchange where somebody wants them. Very large ones are left out.
func keep(t testing.TB, method, path, request string, status int, header http.Header, reply []byte) {
	t.Helper()
	name := os.Getenv("WINDROW_EXCHANGES")
	if name == "" || len(request)+len(reply) > 1<<20 {
		return
	}
	exchanges.Lock()
	defer exchanges.Unlock()
	if exchanges.file == nil {
		f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		exchanges.file = f
	}
	data, err := json.Marshal(exchange{method, path, request, status, header, string(reply)})
	if err == nil {
		_, err = exchanges.file.Write(append(data, '\n'))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestExchanges: what is kept can be read back.
func TestExchanges(t *testing.T) {
	if os.Getenv("WINDROW_EXCHANGES") != "" {
		t.Skip("it is in use")
	}
	name := t.TempDir() + "/x"
	t.Setenv("WINDROW_EXCHANGES", name)
	keep(t, "GET", "/", "", 200, http.Header{"A": {"b"}}, []byte("c"))
	exchanges.Lock()
	exchanges.file.Close()
	exchanges.file = nil
	exchanges.Unlock()
	data, err := os.ReadFile(name)
	var x exchange
	if err != nil || json.Unmarshal(data, &x) != nil || x.Reply != "c" || x.Header.Get("A") != "b" {
		t.Errorf("%s %v", data, err)
	}
}
