package fetch

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"windrow/internal/testhelp"
)

type answer = func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc)

// ofWeights has a lie told of the weights alone.
func ofWeights(lie answer) answer {
	return func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		if strings.HasPrefix(r.URL.Path, "/signed/") && strings.HasSuffix(r.URL.Path, "model.safetensors") {
			lie(w, r, next)
			return
		}
		next(w, r)
	}
}

// times tells a lie n times, and then the truth.
func nTimes(n int, lie answer) answer {
	var mu sync.Mutex
	return func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		mu.Lock()
		n--
		now := n >= 0
		mu.Unlock()
		if now {
			lie(w, r, next)
			return
		}
		next(w, r)
	}
}

// recorded is what an honest hub would answer.
func recorded(r *http.Request, next http.HandlerFunc) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	next(rec, r)
	return rec
}

// relay sends a recorded answer with a body of another kind.
func relay(w http.ResponseWriter, rec *httptest.ResponseRecorder, status int, body []byte) {
	for name, values := range rec.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(status)
	w.Write(body)
}

// cut sends n bytes of an answer that promises more, and resets the connection.
func cut(w http.ResponseWriter, rec *httptest.ResponseRecorder, n int) {
	relay(w, rec, rec.Code, rec.Body.Bytes()[:min(n, rec.Body.Len())])
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
	panic(http.ErrAbortHandler)
}

func status(code int, header ...string) answer {
	return func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
	}
}

// changed sends an answer with a header changed.
func changed(name string, value func(string) string) answer {
	return func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		rec := recorded(r, next)
		rec.Header().Set(name, value(rec.Header().Get(name)))
		relay(w, rec, rec.Code, rec.Body.Bytes())
	}
}

func always(s string) func(string) string { return func(string) string { return s } }

// flipped flips a bit of every answer.
func flipped(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
	rec := recorded(r, next)
	body := rec.Body.Bytes()
	body[len(body)/2] ^= 4
	relay(w, rec, rec.Code, body)
}

// TestFaults: a server that fails, or lies in what the protocol says, is asked again or
// refused; what becomes a blob is right in every case.
func TestFaults(t *testing.T) {
	const size = 60_000
	weights := random(1, size)
	for _, c := range []struct {
		name string
		lie  answer
		fail string // "": it ends well
		most int64  // bytes sent, where it ends well; 0: the size and what 8 runs had in flight
	}{
		{"reset at random", ofWeights(func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
			cut(w, recorded(r, next), 1+rand.IntN(6000))
		}), "", 0},
		{"reset before a byte, nine times", ofWeights(nTimes(9, func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) { panic(http.ErrAbortHandler) })), "", 0},
		{"reset for ever", ofWeights(func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) { panic(http.ErrAbortHandler) }), "no new byte in 10 tries", 0},
		{"stall", ofWeights(nTimes(2, func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
			rec := recorded(r, next)
			relay(w, rec, rec.Code, rec.Body.Bytes()[:100])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})), "", 0},
		{"1 KB/s on one connection", ofWeights(nTimes(1, func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
			rec := recorded(r, next)
			relay(w, rec, rec.Code, nil)
			for _, b := range rec.Body.Bytes() {
				w.Write([]byte{b})
				w.(http.Flusher).Flush()
				select {
				case <-r.Context().Done():
					return
				case <-time.After(time.Millisecond):
				}
			}
		})), "", 0},
		{"416 twice", ofWeights(nTimes(2, status(416))), "", 0},
		{"416 for ever", ofWeights(status(416)), "three times", 0},
		{"200 for a range, always", ofWeights(func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
			r.Header.Del("Range")
			next(w, r)
		}), "", 20 * size},
		{"200 for a range, and cut", ofWeights(func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
			ranged := r.Header.Get("Range") != ""
			r.Header.Del("Range")
			if ranged || rand.IntN(3) > 0 {
				cut(w, recorded(r, next), 10_000)
			}
			next(w, r)
		}), "", 0x7fffffff},
		{"another range", ofWeights(nTimes(3, changed("Content-Range", always("bytes 0-4095/60000")))), "", 1 << 20},
		{"another range, always", ofWeights(changed("Content-Range", always("bytes 1-2/60000"))), "no new byte in 10 tries", 0},
		{"another total", ofWeights(changed("Content-Range", func(s string) string { return strings.ReplaceAll(s, "/60000", "/60001") })), "60001", 0},
		{"no range", ofWeights(changed("Content-Range", always(""))), "no new byte in 10 tries", 0},
		{"more bytes", ofWeights(nTimes(3, func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
			rec := recorded(r, next)
			rec.Header().Del("Content-Length")
			relay(w, rec, rec.Code, append(rec.Body.Bytes(), "more"...))
		})), "", 0},
		{"another length", ofWeights(nTimes(3, func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
			rec := recorded(r, next)
			rec.Header().Set("Content-Length", strconv.Itoa(rec.Body.Len()+3))
			relay(w, rec, rec.Code, append(rec.Body.Bytes(), "abc"...))
		})), "", 0},
		{"gzip", ofWeights(nTimes(3, changed("Content-Encoding", always("gzip")))), "", 0},
		{"gzip, always", ofWeights(changed("Content-Encoding", always("gzip"))), "packed as \"gzip\"", 0},
		{"429", ofWeights(nTimes(5, status(429))), "", 0},
		// The Hub says with every answer how much is left of what a caller may ask.
		{"500 with much left", ofWeights(nTimes(7, status(500, "RateLimit", `"resolve";r=2999;t=300`))), "", 0},
		{"503 with much left", ofWeights(nTimes(7, status(503, "RateLimit", `"resolve";r=2999;t=300`))), "", 0},
		{"the listing fails with much left", nTimes(4, status(502, "RateLimit", `"api";r=499;t=300`)), "", 0},
		{"500 to 504", ofWeights(nTimes(7, func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) { w.WriteHeader(500 + rand.IntN(5)) })), "", 0},
		{"500 for ever", ofWeights(status(500)), "500", 0},
		{"the listing fails", nTimes(4, status(502)), "", 0},
		{"the listing fails for ever", status(502), "502", 0},
		{"a web page", func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.Write([]byte("<html>log in"))
		}, "web page", 0},
		{"not JSON", func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) { w.Write([]byte("[1")) }, "no answer of a hub", 0},
		{"the signature expires", ofWeights(nTimes(4, status(403))), "", 0},
		{"the signature is never good", ofWeights(status(403)), "no new byte in 10 tries", 0},
		{"a bit flipped once", ofWeights(nTimes(1, flipped)), "", 2*size + 20_000},
		{"a bit flipped always", ofWeights(flipped), "no piece came otherwise the second time", 0},
		{"another commit", changed("X-Repo-Commit", always(commitB)), commitB, 0},
		{"another hash", changed("X-Linked-Etag", always(`"abc"`)), "X-Linked-Etag", 0},
		{"another size", changed("X-Linked-Size", always("7")), "X-Linked-Size", 0},
		{"redirects without end", func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
			http.Redirect(w, r, r.URL.Path+"x", http.StatusFound)
		}, "more than 5 redirects", 0},
		{"redirects to nowhere", status(302), "redirects to no address", 0},
		{"redirects to a file", status(302, "Location", "file:///etc/passwd"), "redirects to no address", 0},
		{"no commit", func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
			w.Write([]byte(`{"sha": "../../x"}`))
		}, "40 hexadecimal digits", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, false)
			switch c.name {
			case "stall", "1 KB/s on one connection": // they end well as a run is cut
				s.o.impatient()
			}
			files := map[string][]byte{"config.json": []byte("{}"), "model.safetensors": weights}
			s.hub.Add("me/tiny", commitA, files)
			s.hub.Lie(c.lie)
			if c.fail == "" {
				s.mustPull("hf:me/tiny", files)
				most := c.most
				if most == 0 {
					most = size + 8*16*4096
				}
				if n := s.hub.Sent(); n > most {
					t.Errorf("%d bytes were sent of a file of %d: want at most %d", n, size, most)
				}
				return
			}
			_, err := s.pull("hf:me/tiny")
			testhelp.OneLine(t, c.name, err, c.fail)
			s.honest("me/tiny")
			s.noModel("me/tiny")
			// With an honest server the same call ends well.
			s.hub.Lie(nil)
			s.mustPull("hf:me/tiny", files)
		})
	}
}

// TestTruncation: an answer that ends at any byte of a small file.
func TestTruncation(t *testing.T) {
	s := newScene(t, false)
	s.o.pieceSize = 64
	content := random(3, 200)
	step := 1
	if testing.Short() || os.Getenv("CI") == "" {
		step = 13
		t.Log("left out: most places of a truncation: without CI set")
	}
	for n := 0; n < len(content); n += step {
		files := map[string][]byte{"model.gguf": content}
		name := fmt.Sprintf("me/tiny%d", n)
		repo := s.hub.Add(name, commitA, files)
		repo.Large = 10
		s.hub.Lie(func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
			if strings.HasPrefix(r.URL.Path, "/signed/") {
				rec := recorded(r, next)
				if rec.Body.Len() > 0 && n%64 < rec.Body.Len() {
					cut(w, rec, max(1, n%64))
				}
				relay(w, rec, rec.Code, rec.Body.Bytes())
				return
			}
			next(w, r)
		})
		os.RemoveAll(s.cache.Root)
		s.mustPull("hf:"+name, files)
	}
}

// told is how often an event was told so far.
func (s *scene) told(event string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.Event == event {
			n++
		}
	}
	return n
}

// TestWaits: a server that asks for a pause is not asked meanwhile.
func TestWaits(t *testing.T) {
	for _, c := range []struct {
		header, value string
		least         time.Duration
	}{{"Retry-After", "0.2", 200 * time.Millisecond}, {"RateLimit", `"resolve";r=0;t=1`, time.Second}} {
		s := newScene(t, false)
		s.o.Connections = 2
		files := map[string][]byte{"config.json": []byte("{}"), "model.safetensors": random(1, 60_000)}
		s.hub.Add("me/tiny", commitA, files)
		var mu sync.Mutex
		var until time.Time
		early := 0
		s.hub.Lie(ofWeights(func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
			mu.Lock()
			defer mu.Unlock()
			if until.IsZero() {
				until = time.Now().Add(c.least)
				status(429, c.header, c.value)(w, r, next)
				return
			}
			// Who has not read the answer yet cannot obey it.
			if s.told("wait") > 0 && time.Now().Before(until) {
				early++
			}
			next(w, r)
		}))
		s.mustPull("hf:me/tiny", files)
		if early > 3 { // of 14 that were still to come: some may have been on their way
			t.Errorf("%s: %d requests came before the pause was over", c.header, early)
		}
		if n := s.told("wait"); n != 1 {
			t.Errorf("%s: the pause was told %d times", c.header, n)
		}
	}
	now := time.Unix(1000, 0) // the server's clock, which is not this machine's
	for _, c := range []struct {
		after, limit string
		want         time.Duration
	}{{"", "", 0}, {"7", "", 7 * time.Second}, {"-7", "x;t=-1", 0}, {"x", `"api";r=0;t=55`, 55 * time.Second},
		{"", `"api";r=489;t=189`, 0}, {"", `"api"; r=3; t=189, "resolve"; r=0; t=7`, 7 * time.Second}, {"4", `"api";r=489;t=189`, 4 * time.Second}, {"", `t=9`, 9 * time.Second}, {"", `;=;r=;t=x`, 0},
		{now.Add(time.Minute).UTC().Format(http.TimeFormat), "", time.Minute}, {"99999", "", maxWait}} {
		if got := askedWait(http.Header{"Retry-After": {c.after}, "Ratelimit": {c.limit}, "Date": {now.UTC().Format(http.TimeFormat)}}); got != c.want {
			t.Errorf("%q, %q: %s, want %s", c.after, c.limit, got, c.want)
		}
	}
}

// TestListings: what cannot be written is refused, whoever says it, before a file is made.
func TestListings(t *testing.T) {
	file := func(path string) map[string]any {
		return map[string]any{"type": "file", "path": path, "size": 3, "oid": strings.Repeat("a", 40)}
	}
	with := func(more ...map[string]any) func([]map[string]any) []map[string]any {
		return func(list []map[string]any) []map[string]any { return append(list, more...) }
	}
	many := func([]map[string]any) (list []map[string]any) {
		for i := range 100_000 {
			list = append(list, map[string]any{"type": "file", "path": fmt.Sprint("f", i), "size": 1, "oid": strings.Repeat("a", 40)})
		}
		return list
	}
	for name, c := range map[string]struct {
		listing func([]map[string]any) []map[string]any
		want    string
	}{
		"dots":              {with(file("../../x.json")), "file name"},
		"absolute":          {with(file("/etc/passwd")), "relative"},
		"backslash":         {with(file(`a\b`)), "file name"},
		"control":           {with(file("a\x1b[2Jb")), "file name"},
		"a colon":           {with(file("license:2024")), "none of"},
		"a dot at the end":  {with(file("LICENSE.")), "dot"},
		"twins":             {with(file("run.sh"), file("run.sh")), "files"},
		"300 bytes":         {with(file(strings.Repeat("x", 300))), "255 bytes"},
		"case twins":        {with(file("Config.json")), "case"},
		"100,000 files":     {many, "files"},
		"no hash":           {with(map[string]any{"type": "file", "path": "x", "size": 3}), "hash"},
		"hash is a path":    {with(map[string]any{"type": "file", "path": "x", "size": 3, "oid": "../../../../../../../../../../etc/passwd.."}), "hash"},
		"negative":          {with(map[string]any{"type": "file", "path": "x", "size": -3, "oid": strings.Repeat("a", 40)}), "bytes"},
		"a file and folder": {with(file("config.json/x")), "folder"},
		"sizes differ":      {with(map[string]any{"type": "file", "path": "x", "size": 3, "oid": strings.Repeat("a", 40), "lfs": map[string]any{"oid": strings.Repeat("a", 64), "size": 4}}), "do not agree"},
	} {
		s := newScene(t, false)
		repo := s.hub.Add("me/tiny", commitA, tiny(random(1, 5000)))
		repo.Listing = c.listing
		_, err := s.pull("hf:me/tiny")
		testhelp.OneLine(t, name, err, c.want)
		if _, err := os.Stat(s.cache.Root); err == nil {
			t.Errorf("%s: the cache was made", name)
		}
	}
	// What cannot be written everywhere is no harm where it is not taken.
	odd := newScene(t, false)
	repo := odd.hub.Add("me/tiny", commitA, tiny(random(1, 5000)))
	repo.Listing = with(file("con"), file("runs/18:30?/events.log"), file("a.png"), file("A.PNG"), file("x. "), file("\U0001f469\u200d\U0001f4bb.png"))
	odd.mustPull("hf:me/tiny", repo.Commits[commitA])
	// In pages; and pages that do not end, or are elsewhere.
	s := newScene(t, false)
	files := tiny(random(1, 5000))
	repo = s.hub.Add("me/tiny", commitA, files)
	repo.Page = 2
	s.mustPull("hf:me/tiny", files)
	for name, next := range map[string]string{"the same page": s.hub.URL + "/api/models/me/tiny/tree/" + commitB + "?recursive=true", "elsewhere": "https://example.org/x", "another path": "/api/x"} {
		s.hub.Lie(func(w http.ResponseWriter, r *http.Request, answer http.HandlerFunc) {
			if strings.Contains(r.URL.Path, "/tree/") {
				w.Header().Set("Link", "<"+next+`>; rel="next"`)
				io.WriteString(w, "[]")
				return
			}
			answer(w, r)
		})
		_, err := s.pull("hf:me/tiny@" + commitB)
		testhelp.OneLine(t, name, err, "page")
	}
}

// TestChangedMind: a listing that says otherwise of a commit than an earlier one is an
// error, and nothing is fetched.
func TestChangedMind(t *testing.T) {
	s := newScene(t, false)
	files := tiny(random(1, 5000))
	repo := s.hub.Add("me/tiny", commitA, files)
	s.mustPull("hf:me/tiny", files)
	os.Remove(s.cache.Snapshot("me/tiny", commitA) + "/config.json")
	repo.Commits[commitA] = tiny(random(2, 5000))
	_, err := s.pull("hf:me/tiny")
	testhelp.OneLine(t, "another listing", err, "model.safetensors", "one of the two is wrong")
	s.honest("me/tiny")
}

// TestBranchMoves: the branch moves between the calls: the commit that was seen is
// fetched, whole.
func TestBranchMoves(t *testing.T) {
	s := newScene(t, false)
	files := tiny(random(1, 50_000))
	repo := s.hub.Add("me/tiny", commitA, files)
	repo.Commits[commitB] = tiny(random(2, 50_000))
	s.hub.Lie(func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		next(w, r)
		if strings.Contains(r.URL.Path, "/revision/") {
			repo.Refs["main"] = commitB
		}
	})
	if r := s.mustPull("hf:me/tiny", files); r.Commit != commitA {
		t.Errorf("%+v", r)
	}
	if r := s.mustPull("hf:me/tiny", repo.Commits[commitB]); r.Commit != commitB || r.Before != commitA {
		t.Errorf("%+v", r)
	}
}

// TestToken: the endpoint sees the token, over https; nobody else does, and it is in no
// line, file or event.
func TestToken(t *testing.T) {
	const secret = "hf_thesecretthatnobodysees"
	s := newScene(t, true)
	var err error
	if s.o.Token, err = NewToken("HF_TOKEN", " "+secret+"\n"); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		if text := fmt.Sprintf(verb, s.o); strings.Contains(text, secret) || strings.Contains(text, fmt.Sprintf("%x", secret)) {
			t.Errorf("%s shows it: %s", verb, text)
		}
		if text := fmt.Sprintf(verb, s.o.Token); text != "(set)" {
			t.Errorf("%s: %s", verb, text)
		}
	}
	files := tiny(random(1, 50_000))
	s.hub.Add("me/tiny", commitA, files)
	s.mustPull("hf:me/tiny", files)
	endpoint := strings.TrimPrefix(s.hub.URL, "https://")
	seen := 0
	for _, r := range s.hub.Requests() {
		switch {
		case r.Host != endpoint && r.Authorization != "":
			t.Errorf("%s%s was sent the token", r.Host, r.Path)
		case r.Host == endpoint && r.Authorization != "Bearer "+secret:
			t.Errorf("%s was asked with %q", r.Path, r.Authorization)
		case r.Host == endpoint:
			seen++
		}
	}
	if seen < 3 {
		t.Errorf("the endpoint saw it %d times", seen)
	}
	s.grep(secret)
	// Errors do not show it either, nor signatures.
	s.hub.Add("me/other", commitA, tiny(random(2, 50_000)))
	for _, lie := range []answer{ofWeights(func(http.ResponseWriter, *http.Request, http.HandlerFunc) { panic(http.ErrAbortHandler) }), status(401), ofWeights(status(403)), ofWeights(status(500)),
		func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
			http.Redirect(w, r, "http://127.0.0.1/x?Signature=SECRETSIGNATURE", http.StatusFound)
		}} {
		s.hub.Lie(lie)
		_, err := s.pull("hf:me/other")
		testhelp.OneLine(t, "a failure", err)
		if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "SECRETSIGNATURE") {
			t.Errorf("an error shows a secret: %v", err)
		}
	}
	s.grep(secret)
	s.grep("SECRETSIGNATURE")
	// Over http it is not sent.
	plain := newScene(t, false)
	plain.o.Token = s.o.Token
	plain.hub.Add("me/tiny", commitA, files)
	plain.mustPull("hf:me/tiny", files)
	for _, r := range plain.hub.Requests() {
		if r.Authorization != "" {
			t.Error("the token was sent without TLS")
		}
	}
	for _, bad := range []string{"a b", "a\x00b", "a\nb", "ü"} {
		_, err := NewToken("HF_TOKEN", bad)
		testhelp.OneLine(t, bad, err, "HF_TOKEN")
		if strings.Contains(err.Error(), bad) {
			t.Errorf("an error shows the token: %v", err)
		}
	}
}

// grep fails where a secret is in a file of the cache or an event.
func (s *scene) grep(secret string) {
	s.t.Helper()
	for _, e := range s.events {
		if text := fmt.Sprintf("%+v %s", e, e.Text); strings.Contains(text, secret) {
			s.t.Errorf("an event shows a secret: %s", text)
		}
	}
	if err := walk(s.cache.Root, func(path string, data []byte) {
		if bytes.Contains(data, []byte(secret)) {
			s.t.Errorf("%s holds a secret", path)
		}
	}); err != nil {
		s.t.Error(err)
	}
}

// TestRedirects: the endpoint of a public name may not lead to this machine, nor from
// https to http.
func TestRedirects(t *testing.T) {
	s := newScene(t, true)
	s.hub.Add("me/tiny", commitA, tiny(random(1, 5000)))
	s.hub.Lie(func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		http.Redirect(w, r, "http://example.org/x", http.StatusFound)
	})
	_, err := s.pull("hf:me/tiny")
	testhelp.OneLine(t, "to http", err, "want https")
	base, _ := parseEndpoint("https://hub.example.org")
	for _, to := range []string{"https://127.0.0.1/x", "https://localhost:8484/x", "https://10.0.0.1/x", "https://[::1]/x", "https://192.168.1.1/x", "https://169.254.169.254/latest", "https://[fe80::1]/", "https://0.0.0.0/x", "https://[::ffff:127.0.0.1]/x", "https://a.localhost/"} {
		c := newClient(base, Token{}, "", 1, nil)
		c.http.Transport = fixed{to}
		_, _, err := c.get(t.Context(), base, nil, nil)
		testhelp.OneLine(t, to, err, "private network")
	}
	// A name that leads to this machine is noticed when it is dialled.
	c := newClient(base, Token{}, "", 1, nil)
	u, _ := parseEndpoint(s.hub.URL)
	_, _, err = c.get(t.Context(), u, nil, nil) // another origin than the endpoint, as after a redirect
	testhelp.OneLine(t, "dialled", err, "may not redirect there")
}

// TestTokenStays: whatever the endpoint redirects to, the token goes to its own scheme, host
// and port alone: not to a subdomain, to which Go's client would send it along.
func TestTokenStays(t *testing.T) {
	token, err := NewToken("HF_TOKEN", "secret")
	if err != nil {
		t.Fatal(err)
	}
	base, _ := parseEndpoint("https://hub.example.org")
	for to, want := range map[string]bool{
		"https://hub.example.org/other": true, "https://HUB.example.org:443/other": true, "/other": true,
		"https://cdn.hub.example.org/x": false, "https://example.org/x": false, "https://hub.example.org:8443/x": false,
		"https://hub.example.org.evil.example/x": false, "//cdn.hub.example.org/x": false,
	} {
		seen := map[string]string{} // what came in Authorization, by host
		c := newClient(base, token, "", 1, nil)
		c.http.Transport = asks(func(r *http.Request) *http.Response {
			seen[r.URL.Scheme+" "+r.URL.Host+r.URL.Path] = r.Header.Get("Authorization")
			w := httptest.NewRecorder()
			if r.URL.Path == "/first" {
				w.Header().Set("Location", to)
				w.WriteHeader(302)
			}
			return w.Result()
		})
		first := *base
		first.Path = "/first"
		resp, at, err := c.get(t.Context(), &first, nil, nil)
		if err != nil || resp.StatusCode != 200 {
			t.Errorf("%s: %v", to, err)
			continue
		}
		resp.Body.Close()
		if seen["https hub.example.org/first"] != "Bearer secret" || (seen[at.Scheme+" "+at.Host+at.Path] == "Bearer secret") != want || len(seen) != 2 {
			t.Errorf("%s: %q, want the token there: %t", to, seen, want)
		}
	}
}

// asks is a transport of a function.
type asks func(r *http.Request) *http.Response

// RoundTrip implements http.RoundTripper.
func (f asks) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// fixed is a server that redirects.
type fixed struct{ to string }

// RoundTrip implements http.RoundTripper.
func (f fixed) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 302, Header: http.Header{"Location": {f.to}}, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
}
