package session

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Pages under test: of 4 tokens, 40 bytes that follow from all tokens up to their end.
const (
	pageTokens = 4
	pageBytes  = 40
)

func options() Options {
	return Options{Fingerprint: "test", PageTokens: pageTokens, PageBytes: pageBytes}
}

// pageOf is what a page of some tokens has.
func pageOf(salt string, tokens []int32, page int) []byte {
	h := hashOf(salt).next(tokens[:(page+1)*pageTokens])
	return bytes.Repeat(h[:8], 5)
}

func open(t testing.TB, dir string, o Options) *Store {
	t.Helper()
	os.Chmod(dir, 0o700) // a test's own folder is open to others
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// save saves tokens, and returns how many pages were asked for.
func save(t testing.TB, s *Store, x Session) (info Info, asked int, err error) {
	t.Helper()
	if s.o.States && x.States == nil {
		n := len(x.Tokens)
		x.States = []States{statesOf(x.Tokens, n/2, n/2+2), statesOf(x.Tokens, n-3, n)}
	}
	info, err = s.Save(t.Context(), x, func(page int, dst []byte) error {
		asked++
		copy(dst, pageOf(x.Salt, x.Tokens, page))
		return nil
	})
	return info, asked, err
}

// loads counts them: each is done in another way, which must change nothing.
var loads atomic.Int64

// landing is memory for the pages of a load, of which some are given at once, or none.
type landing struct {
	given, put int
	turned     bool // pages are filled with what is turned, as a backend may want it
	pages      [][]byte
	next       func(data []byte) error
}

// inSomeWay is an Into that gives pages to next.
func inSomeWay(s *Store, next, states func(data []byte) error) (Into, *landing) {
	n := int(loads.Add(1))
	s.ahead, s.readers = n%2 == 0, 1+n%3
	l := &landing{given: []int{0, 1, 3, 100}[n/2%4], next: next}
	to := Into{Room: l.room, Put: l.take, States: states}
	if n%3 > 0 {
		l.turned = true
		to.Filled = turn
	}
	return to, l
}

func (l *landing) room(n int) (list [][]byte, err error) {
	for range min(n, l.given) {
		page := make([]byte, pageBytes)
		l.pages, list = append(l.pages, page), append(list, page)
	}
	return list, nil
}

func (l *landing) take(pages ...[]byte) error {
	for _, page := range pages {
		if l.given > 0 && &page[0] != &l.pages[l.put][0] {
			return errors.New("a page that is not where there was room for it")
		}
		l.put++
		if l.given > 0 && l.turned {
			turn(page)
		}
		if err := l.next(page); err != nil {
			return err
		}
	}
	return nil
}

// turn is undone by itself.
func turn(page []byte) { slices.Reverse(page) }

// check looks at the room that was given, and not used.
func (l *landing) check(t testing.TB) {
	t.Helper()
	for i := l.put; i < len(l.pages); i++ {
		if !bytes.Equal(l.pages[i], make([]byte, pageBytes)) {
			t.Errorf("page %d, which was not handed over, has left something", i)
		}
	}
}

// load loads what there is of a prompt and compares it.
func load(t testing.TB, s *Store, salt string, tokens []int32, from int) (n int, err error) {
	t.Helper()
	h := s.Find(salt, tokens)
	if h == nil {
		return 0, nil
	}
	page := from
	to, l := inSomeWay(s, func(data []byte) error {
		if !bytes.Equal(data, pageOf(salt, tokens, page)) {
			t.Errorf("page %d of %v is another", page, tokens)
		}
		page++
		return nil
	}, func(data []byte) error {
		if !isStates(data, tokens, h) {
			t.Errorf("states of %d tokens are others: % x", h.Tokens, data)
		}
		page++
		return nil
	})
	err = s.Load(t.Context(), h, from, to)
	l.check(t)
	if s.o.States && h != nil {
		page--
	}
	if err == nil && page != max(from, h.Tokens/pageTokens) {
		t.Errorf("%d pages came, want %d", page, h.Tokens/pageTokens)
	}
	return h.Tokens, err
}

func ids(n int, seed uint64) []int32 {
	r := rand.New(rand.NewPCG(seed, 1))
	list := make([]int32, n)
	for i := range list {
		list[i] = r.Int32N(1000)
	}
	return list
}

// TestStore: what is saved is found after a restart, by its salt and model alone; a
// session that goes on shares what it has; files are their owner's alone.
func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sessions")
	s := open(t, dir, options())
	long := ids(1000, 1)
	info, asked, err := save(t, s, Session{Owner: "ann", Name: "x", Salt: "s", Tokens: long[:403]})
	if err != nil || info.Tokens != 400 || asked != 100 || info.Name != "x" || !info.Named || info.Bytes < 4000 {
		t.Fatal(info, asked, err)
	}
	if _, asked, err = save(t, s, Session{Owner: "ann", Name: "x", Salt: "s", Tokens: long[:803]}); err != nil || asked != 104 {
		t.Errorf("its next turn: %d pages, %v", asked, err) // 6 segments of 16 were there
	}
	auto, asked, err := save(t, s, Session{Owner: "ann", Salt: "s", Tokens: long[:803]})
	if err != nil || asked != 0 || auto.Name != "x" {
		t.Errorf("what is there: %+v, %d pages, %v", auto, asked, err)
	}
	if _, err := Open(dir, options()); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("opened twice: %v", err)
	}
	check := func() {
		t.Helper()
		for _, n := range []int{0, 3, 4, 63, 64, 65, 66, 128, 399, 400, 800, 803, 1000} {
			if got, err := load(t, s, "s", long[:n], 0); err != nil || got != min(n, 800)/4*4 {
				t.Errorf("a prompt of %d tokens: %d, %v", n, got, err)
			}
		}
		if got, err := load(t, s, "s", append(slices.Clone(long[:70]), 5, 5, 5), 10); err != nil || got != 68 {
			t.Errorf("one that parts: %d, %v", got, err)
		}
		if s.Find("other", long) != nil {
			t.Error("another salt finds it")
		}
		if list := s.List("ann"); len(list) != 1 || list[0].Tokens != 800 || len(s.List("bob")) != 0 {
			t.Errorf("%+v", list)
		}
	}
	check()
	s.Close()
	if s.Find("s", long) != nil {
		t.Error("a closed store finds something")
	}
	s = open(t, dir, options())
	check()
	if runtime.GOOS != "windows" {
		filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if want := map[bool]fs.FileMode{true: 0o700, false: 0o600}[d.IsDir()]; err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: %v, %v", path, info.Mode(), err)
			}
			return nil
		})
	}
	s.Close()
	o := options()
	o.Fingerprint = "another"
	s = open(t, dir, o)
	if s.Find("s", long) != nil || len(s.List("ann")) != 0 {
		t.Error("another model finds it")
	}
	s.Close()
	s = open(t, dir, options())
	check()
	if tokens, err := s.Delete("ann", "x"); err != nil || len(tokens) != 800 {
		t.Error(len(tokens), err)
	}
	if _, err := s.Delete("ann", "x"); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	if left, _ := os.ReadDir(s.segmentFolder()); len(left) != 0 || s.Bytes() != 0 || s.Find("s", long) != nil {
		t.Errorf("%d segments are left, %d bytes", len(left), s.Bytes())
	}
	if _, _, err := save(t, s, Session{Tokens: long[:3]}); !errors.Is(err, ErrShort) {
		t.Error(err)
	}
}

// TestUnnamed: what continues a session without a name takes its place.
func TestUnnamed(t *testing.T) {
	s := open(t, t.TempDir(), options())
	long := ids(300, 1)
	for _, n := range []int{70, 130, 100, 300} {
		if _, _, err := save(t, s, Session{Tokens: long[:n]}); err != nil {
			t.Fatal(err)
		}
		if list := s.List(""); len(list) != 1 || list[0].Named || list[0].Tokens != map[int]int{70: 68, 130: 128, 100: 128, 300: 300}[n] {
			t.Errorf("after %d: %+v", n, list)
		}
	}
	if _, _, err := save(t, s, Session{Salt: "x", Tokens: long}); err != nil || len(s.List("")) != 2 {
		t.Errorf("another salt: %d, %v", len(s.List("")), err)
	}
}

// TestFailedSave: a save that fails changes nothing.
func TestFailedSave(t *testing.T) {
	s := open(t, t.TempDir(), options())
	long := ids(500, 1)
	if _, _, err := save(t, s, Session{Name: "x", Tokens: long[:200]}); err != nil {
		t.Fatal(err)
	}
	before := s.Bytes()
	broken := errors.New("broken")
	ctx, cancel := context.WithCancel(t.Context())
	for _, c := range []struct {
		ctx  context.Context
		want error
		fail func(page int) error
	}{
		{t.Context(), broken, func(page int) error {
			if page == 100 {
				return broken
			}
			return nil
		}},
		{ctx, context.Canceled, func(page int) error {
			if page == 70 {
				cancel()
			}
			return nil
		}},
	} {
		_, err := s.Save(c.ctx, Session{Name: "x", Tokens: long}, func(page int, dst []byte) error { return c.fail(page) })
		if !errors.Is(err, c.want) || s.Bytes() != before {
			t.Errorf("%v, %d bytes, before %d", err, s.Bytes(), before)
		}
		if n, err := load(t, s, "", long, 0); n != 200 || err != nil {
			t.Errorf("%d tokens are there, %v", n, err)
		}
	}
	if files, _ := os.ReadDir(s.segmentFolder()); len(files) != 4 {
		t.Errorf("%d segments are left", len(files))
	}
}

// TestLimit: the folder never has more than its limit, the oldest goes first, and what
// cannot be there is refused.
func TestLimit(t *testing.T) {
	o := options()
	o.Limit = 40_000
	s := open(t, t.TempDir(), o)
	on := func() (n int64) {
		filepath.WalkDir(s.folder, func(path string, d fs.DirEntry, err error) error {
			if info, err := d.Info(); err == nil && !d.IsDir() {
				n += info.Size()
			}
			return nil
		})
		return n
	}
	at := time.Now().Add(-time.Hour)
	for i := range 20 {
		at = at.Add(time.Second)
		if _, _, err := save(t, s, Session{Name: fmt.Sprint(i), Tokens: ids(400, uint64(i)), Used: at}); err != nil {
			t.Fatal(err)
		}
		if n := on(); n > o.Limit || n != s.Bytes() {
			t.Errorf("%d bytes are there, %d counted, of %d", n, s.Bytes(), o.Limit)
		}
	}
	list := s.List("")
	if len(list) < 3 || len(list) > 6 || list[0].Name != "19" || list[len(list)-1].Name != fmt.Sprint(20-len(list)) {
		t.Errorf("%+v", list)
	}
	var full *FullError
	if _, _, err := save(t, s, Session{Name: "large", Tokens: ids(10000, 99)}); !errors.As(err, &full) || s.Bytes() > o.Limit {
		t.Errorf("a session larger than all: %v", err)
	}
	s.Close()
	o.Limit = 15_000
	if s = open(t, s.folder, o); on() > o.Limit {
		t.Errorf("a smaller limit: %d bytes", on())
	}
}

// TestDamage: whatever byte of whatever file is another, or missing, what is loaded is
// what was saved, or nothing; a line says so.
func TestDamage(t *testing.T) {
	t.Run("keys", func(t *testing.T) { testDamage(t, options(), 3) })
	o := options()
	o.States = true
	t.Run("states", func(t *testing.T) { testDamage(t, o, 4) })
}

func testDamage(t *testing.T, o Options, count int) {
	dir := t.TempDir()
	s := open(t, dir, o)
	tokens := ids(100, 3)
	if _, _, err := save(t, s, Session{Name: "x", Tokens: tokens, States: []States{statesOf(tokens, 97, 100)}[:count-3]}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	var files []string
	for _, folder := range []string{s.sessionFolder(), s.segmentFolder()} {
		each(folder, "", func(path, stem string, info fs.FileInfo) { files = append(files, path) })
	}
	if len(files) != count {
		t.Fatal(files)
	}
	keep := map[string][]byte{}
	for _, path := range files {
		keep[path], _ = os.ReadFile(path)
	}
	stride := 19
	if os.Getenv("CI") != "" && !testing.Short() {
		stride = 1
	}
	damaged, lost := 0, 0
	try := func(path string, data []byte) {
		t.Helper()
		for path, data := range keep {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		notes := 0
		o.Note = func(line string) {
			notes++
			if strings.Contains(line, "\n") {
				t.Errorf("%q", line)
			}
		}
		s, err := Open(dir, o)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		damaged++
		n, err := load(t, s, "", tokens, 0)
		if n != 100 || err != nil {
			lost++
			if notes != 1 || s.Find("", tokens) != nil || len(s.List("")) != 0 {
				t.Errorf("%s: %d notes, %d tokens, %v", filepath.Base(path), notes, n, err)
			}
		}
	}
	for _, path := range files {
		for i := 0; i < len(keep[path]); i += stride {
			data := slices.Clone(keep[path])
			data[i] ^= 1 << (i % 8)
			try(path, data)
			try(path, data[:i])
		}
		try(path, append(slices.Clone(keep[path]), 0))
	}
	if lost < damaged*9/10 {
		t.Errorf("%d of %d damages were noticed", lost, damaged)
	}
}

// TestForeign: files of others stay, and what a process left half done goes.
func TestForeign(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, options()).Close()
	stay := []string{"README", "sessions/notes.json", "segments/a.wkv"}
	go_ := []string{"sessions/.x.json.00000000.tmp", "segments/.x.wkv.00000000.tmp", "segments/" + strings.Repeat("a", 64) + ".wkv"}
	for _, name := range append(stay, go_...) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	open(t, dir, options()).Close()
	for _, name := range stay {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	for _, name := range go_ {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
	if runtime.GOOS != "windows" {
		os.Chmod(dir, 0o755)
		if _, err := Open(dir, options()); err == nil || !strings.Contains(err.Error(), "chmod 700") {
			t.Error(err)
		}
	}
}

// Parsers of files: nothing panics, and what is taken is what is written.
func FuzzSegment(f *testing.F) {
	for _, state := range []*stateHeader{nil, {3, 100}} {
		h := header{"f", hashOf("x"), pageTokens, pageBytes, ids(7, 1), state}
		var b bytes.Buffer
		h.write(&b, func(page int, dst []byte) error { return nil })
		f.Add(b.Bytes())
	}
	f.Add([]byte(segmentMagic))
	f.Add(binary.LittleEndian.AppendUint32([]byte(segmentMagic+"\x01\x00\x00\x00"), 1<<31))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := openSegment(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		if x.pageSize() > len(data) {
			t.Fatalf("pages of %d bytes in a file of %d", x.pageSize(), len(data))
		}
		for i := range x.pages() {
			x.page(i, make([]byte, x.pageSize()+4))
		}
	})
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"version":1,"page_tokens":4,"tokens":[1,2,3,4],"segments":["` + strings.Repeat("0", 64) + `"]}`))
	f.Add([]byte(`{"version":1,"page_tokens":-4,"tokens":[1,2,3,4]}`))
	m := &manifest{Version: manifestVersion, Fingerprint: "f", PageTokens: pageTokens, Tokens: ids(70, 1), States: []place{{From: 65, End: 66, Bytes: 9}, {From: 2, End: 70, Bytes: 8}}}
	headers := cut(m.Root, m.Fingerprint, m.PageTokens, 0, m.Tokens)
	for i := range headers {
		m.Segments = append(m.Segments, headers[i].name())
	}
	for i := range m.States {
		h := m.States[i].cut(headers)
		m.States[i].Name = h.name()
	}
	data, err := json.Marshal(m)
	if err != nil {
		f.Fatal(err)
	}
	if _, _, err := parseManifest(data); err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(bytes.Replace(data, []byte(`"from":2`), []byte(`"from":-2`), 1))
	f.Add(bytes.Replace(data, []byte(`"end":70`), []byte(`"end":9999999999`), 1))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, headers, err := parseManifest(data)
		if err != nil {
			return
		}
		files := m.files()
		if len(files) != len(headers) {
			t.Fatal("files without headers")
		}
		for i := range files {
			if headers[i].name() != files[i] {
				t.Fatalf("file %d is another's", i)
			}
		}
	})
}
