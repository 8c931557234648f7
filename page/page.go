package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

//go:embed static third_party
var files embed.FS

// Policy is the page's content security policy: its own server's files alone, nothing
// inline, and no markup made of text but by DOMPurify.
const Policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; " +
	"require-trusted-types-for 'script'; trusted-types dompurify"

// Assets is the path below which the page's assets stand.
const Assets = "/ui/"

// kinds are the assets' content types by their extension: those of the machine's tables
// differ.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".mjs":  "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// site is the page made ready.
type site struct {
	index   []byte
	tag     string // of all files, as an ETag
	version string // the part of their paths that changes with them
	assets  map[string][]byte
}

// ready makes the site, once. The files are the program's own: they can be read.
var ready = sync.OnceValue(func() *site {
	s := &site{assets: map[string][]byte{}}
	h := sha256.New()
	for _, folder := range []string{"static", "third_party"} {
		err := fs.WalkDir(files, folder, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := files.ReadFile(name)
			fmt.Fprintln(h, name, len(data))
			h.Write(data)
			if _, served := kinds[path.Ext(name)]; served {
				s.assets[strings.TrimPrefix(name, "static/")] = data
			}
			return err
		})
		if err != nil {
			panic(err)
		}
	}
	s.version = fmt.Sprintf("%x", h.Sum(nil)[:8])
	s.tag = `"` + s.version + `"`
	s.index = bytes.ReplaceAll(s.assets["index.html"], []byte(`"ui/`), []byte(`"ui/`+s.version+"/"))
	delete(s.assets, "index.html")
	return s
})

// Index answers a browser's request for the page, which is asked for again each time.
func Index(w http.ResponseWriter, r *http.Request) {
	s := ready()
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("Vary", "Accept") // others get JSON here
	s.answer(w, r, "index.html", s.index)
}

// Has reports whether a path is that of an asset.
func Has(path string) bool {
	_, ok := ready().find(path)
	return ok
}

// Asset answers a request for a path that Has reports. It may be kept for ever: other
// bytes stand at another path.
func Asset(w http.ResponseWriter, r *http.Request) {
	s := ready()
	data, ok := s.find(r.URL.Path)
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	s.answer(w, r, r.URL.Path, data)
}

// find is the asset at a path.
func (s *site) find(path string) ([]byte, bool) {
	name, ok := strings.CutPrefix(path, Assets+s.version+"/")
	if !ok {
		return nil, false
	}
	data, ok := s.assets[name]
	return data, ok
}

// answer writes a file, or that it has not changed.
func (s *site) answer(w http.ResponseWriter, r *http.Request, name string, data []byte) {
	h := w.Header()
	h.Set("Content-Type", kinds[path.Ext(name)])
	h.Set("Content-Security-Policy", Policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("ETag", s.tag)
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
}
