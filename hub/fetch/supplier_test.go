package fetch

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"windrow/hub"
	"windrow/internal/testhelp"
)

// fakePeer is a Windrow that shares some contents, and lies where a test wants it to.
type fakePeer struct {
	*httptest.Server
	contents map[string][]byte // by digest
	mu       sync.Mutex
	lie      answer
	keys     []string // what came in Authorization
	sent     atomic.Int64
}

func newFakePeer(t *testing.T, contents ...[]byte) *fakePeer {
	p := &fakePeer{contents: map[string][]byte{}}
	for _, c := range contents {
		p.contents[string(digestOf(c))] = c
	}
	honest := func(w http.ResponseWriter, r *http.Request) {
		content, ok := p.contents[strings.TrimPrefix(r.URL.Path, "/blob/")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.keys = append(p.keys, r.Header.Get("Authorization"))
		lie := p.lie
		p.mu.Unlock()
		if lie != nil {
			lie(&sending{w, &p.sent}, r, honest)
			return
		}
		honest(&sending{w, &p.sent}, r)
	}))
	t.Cleanup(p.Server.Close)
	return p
}

// seen are the keys that came so far: a request may still be on its way when a pull ends.
func (p *fakePeer) seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.keys)
}

// sending counts what is sent.
type sending struct {
	http.ResponseWriter
	n *atomic.Int64
}

// Write implements io.Writer.
func (s *sending) Write(p []byte) (int, error) {
	n, err := s.ResponseWriter.Write(p)
	s.n.Add(int64(n))
	return n, err
}

// Flush implements http.Flusher.
func (s *sending) Flush() { s.ResponseWriter.(http.Flusher).Flush() }

// slowly has a server wait before each answer, so that others have their turn.
func slowly(wait time.Duration) answer {
	return func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		time.Sleep(wait)
		next(w, r)
	}
}

// left is what was said of peers that were left out.
func (s *scene) left() (said string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.Event == "note" {
			said += e.Text + "\n"
		}
	}
	return said
}

// TestPeers: peers give most of a file where the hub is slow; neither sees the other's
// key; what a peer does not have comes from the hub. Who gives how much depends on what else
// the machine does: one of some pulls has to be divided as it is where nothing disturbs.
func TestPeers(t *testing.T) {
	divided := ""
	for range 10 {
		if divided = pullOfPeers(t); divided == "" || t.Failed() {
			break
		}
	}
	if divided != "" {
		t.Error(divided)
	}
}

// pullOfPeers is one pull for TestPeers. It returns what is wrong with how it was divided.
func pullOfPeers(t *testing.T) (divided string) {
	s := newScene(t, true)
	weights := random(1, 400_000)
	files := tiny(weights)
	s.hub.Add("me/tiny", commitA, files)
	s.hub.Lie(ofWeights(slowly(20 * time.Millisecond)))
	a, b, none := newFakePeer(t, weights), newFakePeer(t, weights, files["tokenizer.json"]), newFakePeer(t)
	a.lie, b.lie = slowly(2*time.Millisecond), slowly(2*time.Millisecond) // else one may give all before the other has its turn
	s.o.Peers = []string{strings.TrimPrefix(a.URL, "http://"), b.URL, b.URL, none.URL}
	var err error
	if s.o.Token, err = NewToken("HF_TOKEN", "hf_ofthehub"); err != nil {
		t.Fatal(err)
	}
	if s.o.PeerToken, err = NewToken("key", "ofthepeers"); err != nil {
		t.Fatal(err)
	}
	r := s.mustPull("hf:me/tiny", files)
	gave := a.sent.Load() + b.sent.Load()
	if r.FromPeers > gave || r.Fetched < 405_000 || r.Fetched > 420_000 {
		t.Errorf("the peers sent %d and %d bytes: %+v", a.sent.Load(), b.sent.Load(), r)
	}
	switch n := s.hub.Sent(); {
	case a.sent.Load() < 20_000 || b.sent.Load() < 20_000 || r.FromPeers < 200_000:
		divided = fmt.Sprintf("the peers sent %d and %d bytes: %+v", a.sent.Load(), b.sent.Load(), r)
	case n < 4096 || n > 200_000:
		divided = fmt.Sprintf("the hub sent %d bytes: want a part of them", n)
	}
	for _, q := range s.hub.Requests() {
		if strings.Contains(q.Authorization, "ofthepeers") {
			t.Error("the hub saw the peers' key")
		}
	}
	for _, p := range []*fakePeer{a, b, none} {
		if len(p.seen()) == 0 {
			t.Error("a peer was not asked")
		}
		for _, key := range p.seen() {
			if key != "Bearer ofthepeers" {
				t.Errorf("a peer saw %q", key)
			}
		}
	}
	s.grep("ofthepeers")
	if said := s.left(); said != "" {
		t.Errorf("left out: %s", said)
	}
	s.o.Peers = []string{"nonsense"}
	_, err = s.pull("hf:me/tiny")
	testhelp.OneLine(t, "no address", err, "HOST:PORT")
	s.o.Peers = make([]string, MaxPeers+1)
	_, err = s.pull("hf:me/tiny")
	testhelp.OneLine(t, "too many", err, "at most")
	return divided
}

// TestPeerFaults: a peer that lies, dies or knows nothing costs the bytes that it gave,
// and nothing else: the model is right, and the hub sends no more than the file.
func TestPeerFaults(t *testing.T) {
	const size = 200_000
	weights := random(1, size)
	files := map[string][]byte{"config.json": []byte("{}"), "model.safetensors": weights}
	var dead atomic.Int64
	for _, c := range []struct {
		name string
		lie  answer
		said string // what is said of it
	}{
		{"lies always", flipped, "gave other bytes"},
		{"lies once", nTimes(1, flipped), "gave other bytes"},
		{"lies in its last piece", func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
			if strings.Contains(r.Header.Get("Range"), "199999") {
				flipped(w, r, next)
				return
			}
			next(w, r)
		}, ""}, // it may not be the one that is asked for it
		{"dies", func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
			if dead.Add(1) > 4 {
				panic(http.ErrAbortHandler)
			}
			next(w, r)
		}, "is left out"},
		{"resets in the midst", func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
			cut(w, recorded(r, next), 1000)
		}, ""},
		{"answers nothing", func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) { <-r.Context().Done() }, ""},
		{"a byte, and then nothing", func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
			rec := recorded(r, next)
			relay(w, rec, rec.Code, rec.Body.Bytes()[:1])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, ""},
		{"knows no key", status(401), "wants a key"},
		{"forbids", status(403), "403"},
		{"is busy", status(429, "Retry-After", "1"), ""},
		{"fails", status(500), "500"},
		{"has nothing", status(404), ""},
		{"sends all", func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
			r.Header.Del("Range")
			next(w, r)
		}, "whole file"},
		{"another range", changed("Content-Range", always("bytes 0-4095/200000")), "answers with range"},
		{"another total", changed("Content-Range", func(s string) string { return strings.ReplaceAll(s, "/200000", "/200001") }), "200001"},
		{"gzip", changed("Content-Encoding", always("gzip")), "packed"},
		{"redirects", status(302, "Location", "http://127.0.0.1:1/"), "redirects"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, false)
			s.hub.Add("me/tiny", commitA, files)
			s.o.times.slow, s.o.times.stall = 2*time.Second, 2*time.Second // no other run is cut on a busy machine
			// The hub waits until the peer was asked, and, where that does not take the whole
			// file, until it is left out: however the machine divides its time, it has its turn.
			asked, ask := context.WithTimeout(t.Context(), 20*time.Second)
			defer ask()
			s.hub.Lie(ofWeights(func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
				<-asked.Done()
				for n := 0; c.said != "" && c.said != "gave other bytes" && s.left() == "" && n < 20_000; n++ {
					time.Sleep(time.Millisecond)
				}
				time.Sleep(3 * time.Millisecond)
				next(w, r)
			}))
			p := newFakePeer(t, weights)
			p.lie = func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
				if !strings.HasSuffix(r.URL.Path, string(digestOf(weights))) {
					next(w, r) // that it does not have the other file is no lie, and uses none up
					return
				}
				ask()
				c.lie(w, r, next)
			}
			s.o.Peers = []string{p.URL}
			r := s.mustPull("hf:me/tiny", files)
			if len(p.seen()) == 0 {
				t.Error("the peer was not asked")
			}
			if n, most := s.hub.Sent(), int64(size+8*4096); n > most {
				t.Errorf("the hub sent %d bytes: want at most %d (%d came from the peer)", n, most, r.FromPeers)
			}
			if said := s.left(); !strings.Contains(said, c.said) || (c.said == "") != (said == "") && c.said != "" || strings.Count(said, "\n") > 1 {
				t.Errorf("said: %q, want %q", said, c.said)
			}
		})
	}
	t.Run("nobody is there", func(t *testing.T) {
		s := newScene(t, false)
		s.hub.Add("me/tiny", commitA, files)
		s.o.Peers = []string{"127.0.0.1:1"}
		s.mustPull("hf:me/tiny", files)
	})
}

// TestPeersAlone: the hub dies after it has said what the model is, and a peer has all of
// it.
func TestPeersAlone(t *testing.T) {
	s := newScene(t, false)
	weights := random(1, 200_000)
	files := map[string][]byte{"config.json": []byte("{}"), "model.safetensors": weights}
	s.hub.Add("me/tiny", commitA, files)
	for _, lie := range []answer{func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) { panic(http.ErrAbortHandler) }, status(502), status(429)} {
		s.hub.Lie(ofWeights(lie))
		p := newFakePeer(t, weights)
		p.lie = slowly(5 * time.Millisecond)
		s.o.Peers = []string{p.URL}
		if r := s.mustPull("hf:me/tiny", files); r.FromPeers != 200_000 {
			t.Errorf("%+v", r)
		}
		// It fails, where the peer dies, too, and says why.
		if err := removeAll(s.cache); err != nil {
			t.Fatal(err)
		}
		p.lie = status(500)
		_, err := s.pull("hf:me/tiny")
		testhelp.OneLine(t, "both", err, "no new byte in 10 tries")
		if err := removeAll(s.cache); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPeerBefore: what a lying peer gave to a pull that was interrupted is the first to be
// fetched again.
func TestPeerBefore(t *testing.T) {
	const size = 200_000
	s := newScene(t, false)
	weights := random(1, size)
	files := map[string][]byte{"config.json": []byte("{}"), "model.safetensors": weights}
	s.hub.Add("me/tiny", commitA, files)
	p := newFakePeer(t, weights)
	p.lie = flipped
	// The hub gives a little, and breaks off once the peer has given some.
	var asked atomic.Int64
	s.hub.Lie(ofWeights(func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		if asked.Add(1) <= 4 {
			next(w, r)
			return
		}
		for n := 0; p.sent.Load() <= 60_000 && n < 20_000; n++ {
			time.Sleep(time.Millisecond)
		}
		status(404, "X-Error-Code", "EntryNotFound")(w, r, next)
	}))
	s.o.Peers = []string{p.URL}
	if _, err := s.pull("hf:me/tiny"); err == nil {
		t.Fatal("it ended well")
	}
	s.hub.Lie(nil)
	byHub := s.hub.Sent()
	s.o.Peers = nil
	s.mustPull("hf:me/tiny", files)
	if n, most := s.hub.Sent(), int64(size+8*4096); n > most || byHub > size/2 {
		t.Errorf("the hub sent %d bytes in all, %d of them at first: want at most %d", n, byHub, most)
	}
}

func removeAll(c *hub.Cache) error { return os.RemoveAll(c.Root) }
