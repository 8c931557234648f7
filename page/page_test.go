package page_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"windrow/page"
)

// get asks for a path.
func get(t *testing.T, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest("GET", path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	if path == "/" {
		page.Index(w, r)
	} else {
		page.Asset(w, r)
	}
	return w
}

var assetPath = regexp.MustCompile(`"(ui/[0-9a-f]{16}/[^"]+)"`)

// TestAssets: what the page names is there, may be kept for ever, and is not sent twice.
func TestAssets(t *testing.T) {
	t.Parallel()
	index := get(t, "/")
	tag := index.Header().Get("ETag")
	if index.Code != 200 || tag == "" || index.Header().Get("Cache-Control") != "no-cache" {
		t.Errorf("%d %v", index.Code, index.Header())
	}
	if again := get(t, "/", "If-None-Match", tag); again.Code != http.StatusNotModified {
		t.Errorf("again: %d", again.Code)
	}
	found := assetPath.FindAllStringSubmatch(index.Body.String(), -1)
	if len(found) < 5 {
		t.Errorf("the page names %d assets", len(found))
	}
	for _, m := range found {
		w := get(t, "/"+m[1])
		if w.Code != 200 || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") || w.Header().Get("Content-Type") == "" {
			t.Errorf("%s: %d %v", m[1], w.Code, w.Header())
		}
		if !page.Has("/" + m[1]) {
			t.Errorf("%s is not known", m[1])
		}
	}
	if w := get(t, "/ui/nothing"); w.Code != 404 {
		t.Errorf("%d", w.Code)
	}
}

// TestImports: every module that another imports is there.
func TestImports(t *testing.T) {
	t.Parallel()
	imports := regexp.MustCompile(`(?m)^import .*?from '(.+?)';`)
	n := 0
	eachFile(t, "static/js", func(name string, data []byte) {
		for _, m := range imports.FindAllSubmatch(data, -1) {
			n++
			to := filepath.Join(filepath.Dir(name), string(m[1]))
			if strings.HasPrefix(string(m[1]), "../third_party/") {
				to = strings.TrimPrefix(string(m[1]), "../")
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s imports %s: %v", name, m[1], err)
			}
		}
	})
	if n < 10 {
		t.Errorf("%d imports were looked at", n)
	}
}

// TestSmall: our own files are under 80 KB together, and make no markup of text, nor
// styles or handlers in it, which the policy would refuse.
func TestSmall(t *testing.T) {
	t.Parallel()
	total := 0
	inline := regexp.MustCompile(`(?i)innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\sstyle="|\son[a-z]+="|<style|https?://`)
	eachFile(t, "static", func(name string, data []byte) {
		total += len(data)
		data = bytes.ReplaceAll(data, []byte("http://www.w3.org/2000/svg"), nil)
		if m := inline.Find(data); m != nil {
			t.Errorf("%s has %q", name, m)
		}
	})
	if total > 80<<10 {
		t.Errorf("the page's own files have %d bytes: want %d at most", total, 80<<10)
	}
	t.Logf("%d bytes", total)
}

// TestThirdParty: the libraries are those whose checksums are written down, all of them.
func TestThirdParty(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("third_party/README.md")
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(readme))
	for lines.Scan() {
		if sum, name, ok := strings.Cut(strings.TrimSpace(lines.Text()), "  "); ok && len(sum) == 64 {
			sums[name] = sum
		}
	}
	eachFile(t, "third_party", func(name string, data []byte) {
		name = strings.TrimPrefix(filepath.ToSlash(name), "third_party/")
		if got := fmt.Sprintf("%x", sha256.Sum256(data)); name != "README.md" && sums[name] != got {
			t.Errorf("%s has the checksum %s, written down is %q", name, got, sums[name])
		}
		delete(sums, name)
	})
	if len(sums) > 0 {
		t.Errorf("not there: %v", sums)
	}
}

func eachFile(t *testing.T, folder string, f func(name string, data []byte)) {
	t.Helper()
	err := filepath.WalkDir(folder, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		f(name, data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
