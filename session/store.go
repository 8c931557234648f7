package session

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"windrow/filelock"
	"windrow/internal/atomicfile"
)

// Options say what a store is of.
type Options struct {
	// Fingerprint names what besides tokens and salt decides on a page's bytes: weights,
	// arithmetic, types. Sessions of another one stay on disk, and are not found.
	Fingerprint string
	// PageTokens and PageBytes are what a page holds.
	PageTokens, PageBytes int
	// States says that keys are not all that the model keeps: there are states, which can
	// be had behind some numbers of tokens alone. Then sessions need not end with a whole
	// page, and only what has states is found.
	States bool
	// Limit is how many bytes the folder may have; the oldest sessions go first. 0: no
	// limit.
	Limit int64
	// Note, where not nil, gets a line for each session that is dropped because something
	// is wrong with it. It may be called by several goroutines.
	Note func(line string)

	step func(what string) // for tests: see atomicfile.Options
}

// Info is what a session is.
type Info struct {
	// Owner is whose it is, Name what it is called. Named is false where nobody gave it
	// the name, which is then made of what it holds.
	Owner, Name string
	Named       bool
	// Tokens are how many are kept; Bytes what its files have, shared ones included.
	Tokens int
	Bytes  int64
	// Used is when it was last saved or loaded.
	Used time.Time
}

// Store is a folder of sessions. It is safe for concurrent use; one process has a folder
// at a time.
type Store struct {
	folder  string
	o       Options
	lock    *os.File
	ahead   bool // pages are read ahead
	readers int  // pages that are read at once

	saving sync.Mutex // one saves or deletes at a time

	mutex    sync.Mutex // guards what follows
	sessions map[key]*manifest
	segments map[hash]*segment
	children map[hash][]*segment
	bytes    int64 // of all files
	closed   bool
}

// segment is a segment on disk.
type segment struct {
	name hash
	header
	refs  int // sessions that have it, and saves that will
	bytes int64
	there bool // its file is; while it is being saved it is not
}

var (
	// ErrUnknown is a session that is not there.
	ErrUnknown = errors.New("there is no such session")
	// ErrShort is a session of less than a page.
	ErrShort = errors.New("the session is shorter than a page: there is nothing to save")
	// ErrClosed is the use of a closed store.
	ErrClosed = errors.New("the store of sessions is closed")
)

// FullError is a session that the store's limit has no room for.
type FullError struct {
	// Need are the bytes that it and what must stay beside it have, of Limit.
	Need, Limit int64
}

func (e *FullError) Error() string {
	return fmt.Sprintf("the session needs %d bytes on disk; all sessions may have %d", e.Need, e.Limit)
}

// Open opens a folder, which is made where there is none, for this process alone, and
// removes what a process that was killed has left half done.
func Open(folder string, o Options) (*Store, error) {
	if o.PageTokens < 1 || o.PageBytes < 1 {
		return nil, fmt.Errorf("sessions of pages of %d tokens, %d bytes: want positive numbers", o.PageTokens, o.PageBytes)
	}
	if o.Note == nil {
		o.Note = func(string) {}
	}
	s := &Store{folder: folder, o: o, ahead: readsAhead(o.PageBytes), readers: min(maxReaders, runtime.GOMAXPROCS(0)), sessions: map[key]*manifest{}, segments: map[hash]*segment{}, children: map[hash][]*segment{}}
	for _, dir := range []string{folder, s.sessionFolder(), s.segmentFolder()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("sessions: %w", err)
		}
	}
	if info, err := os.Stat(folder); err != nil {
		return nil, fmt.Errorf("sessions: %w", err)
	} else if runtime.GOOS != "windows" && info.Mode()&0o077 != 0 {
		return nil, fmt.Errorf("sessions: others can read %s: chmod 700 %[1]s", folder)
	}
	var err error
	if s.lock, err = os.OpenFile(filepath.Join(folder, "lock"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, fmt.Errorf("sessions: %w", err)
	}
	err = filelock.TryLock(s.lock)
	if errors.Is(err, filelock.ErrHeld) {
		err = fmt.Errorf("sessions: another process uses %s", folder)
	}
	if err == nil {
		err = s.scan()
	}
	if err != nil {
		s.lock.Close()
		return nil, err
	}
	return s, nil
}

// Close gives the folder up. Loads that run may end with an error.
func (s *Store) Close() error {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.lock.Close()
}

func (s *Store) sessionFolder() string { return filepath.Join(s.folder, "sessions") }
func (s *Store) segmentFolder() string { return filepath.Join(s.folder, "segments") }

func (s *Store) sessionPath(k key) string { return filepath.Join(s.sessionFolder(), k.file()) }
func (s *Store) segmentPath(name hash) string {
	return filepath.Join(s.segmentFolder(), name.String()+".wkv")
}

// scan reads what the folder has. Files that nobody put there by these names stay.
func (s *Store) scan() error {
	sizes := map[hash]int64{}
	err := each(s.segmentFolder(), ".wkv", func(path, stem string, info fs.FileInfo) {
		var name hash
		if name.UnmarshalText([]byte(stem)) == nil {
			sizes[name] = info.Size()
		}
	})
	if err != nil {
		return err
	}
	err = each(s.sessionFolder(), ".json", func(path, stem string, info fs.FileInfo) {
		if len(stem) != 32 {
			return
		}
		if err := s.take(path, info, sizes); err != nil {
			s.o.Note(fmt.Sprintf("session %s is dropped: %v", stem, err))
			os.Remove(path)
		}
	})
	if err != nil {
		return err
	}
	for name := range sizes {
		if s.segments[name] == nil {
			os.Remove(s.segmentPath(name))
		}
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for s.o.Limit > 0 && s.bytes > s.o.Limit && s.dropOldest(key{}) {
	}
	return nil
}

// each calls f for the files of a folder with an ending, and removes those that were
// never finished.
func each(folder, ending string, f func(path, stem string, info fs.FileInfo)) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("sessions: %w", err)
	}
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		info, err := entry.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if atomicfile.IsTemporary(entry.Name()) {
			os.Remove(path)
		} else if stem, ok := strings.CutSuffix(entry.Name(), ending); ok {
			f(path, stem, info)
		}
	}
	return nil
}

// take reads a session's file.
func (s *Store) take(path string, info fs.FileInfo, sizes map[hash]int64) error {
	if info.Size() > maxManifest {
		return fmt.Errorf("its file has %d bytes", info.Size())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	m, headers, err := parseManifest(data)
	if err != nil {
		return err
	}
	if filepath.Base(path) != m.key().file() {
		return errors.New("its file has another's name")
	}
	ours := m.Fingerprint == s.o.Fingerprint
	if ours && m.PageTokens != s.o.PageTokens {
		return fmt.Errorf("its pages have %d tokens: want %d", m.PageTokens, s.o.PageTokens)
	}
	for i, name := range m.files() {
		size, there := sizes[name]
		if !there {
			return fmt.Errorf("segment %s is not there", name)
		}
		if headers[i].PageBytes = s.o.PageBytes; ours && size != headers[i].size() {
			return fmt.Errorf("segment %s has %d bytes: want %d", name, size, headers[i].size())
		}
	}
	m.bytes, m.used = info.Size(), info.ModTime()
	for i, name := range m.files() {
		s.refer(name, headers[i], sizes[name]).there = true
	}
	s.sessions[m.key()] = m
	s.bytes += m.bytes
	return nil
}

// refer counts another user of a segment.
func (s *Store) refer(name hash, h header, bytes int64) *segment {
	x := s.segments[name]
	if x == nil {
		x = &segment{name: name, header: h, bytes: bytes}
		s.segments[name] = x
		s.children[h.Parent] = append(s.children[h.Parent], x)
		s.bytes += bytes
	}
	x.refs++
	return x
}

// release gives segments up; those that nobody uses any more are removed.
func (s *Store) release(names []hash) {
	for _, name := range names {
		x := s.segments[name]
		if x == nil {
			continue
		}
		if x.refs--; x.refs > 0 {
			continue
		}
		delete(s.segments, name)
		s.bytes -= x.bytes
		rest := slices.DeleteFunc(s.children[x.Parent], func(y *segment) bool { return y == x })
		if len(rest) == 0 {
			delete(s.children, x.Parent)
		} else {
			s.children[x.Parent] = rest
		}
		os.Remove(s.segmentPath(name))
	}
}

// drop removes a session: its file first, so that none is ever there without its
// segments.
func (s *Store) drop(m *manifest) error {
	path := s.sessionPath(m.key())
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := atomicfile.SyncFolder(s.sessionFolder())
	delete(s.sessions, m.key())
	s.bytes -= m.bytes
	s.release(m.files())
	return err
}

// dropOldest drops the session that was not used for the longest time, but for one, and
// reports whether there was one.
func (s *Store) dropOldest(but key) bool {
	var oldest *manifest
	for k, m := range s.sessions {
		if k != but && (oldest == nil || m.used.Before(oldest.used)) {
			oldest = m
		}
	}
	return oldest != nil && s.drop(oldest) == nil
}

// info is a session as others see it.
func (s *Store) info(m *manifest) Info {
	i := Info{Owner: m.Owner, Name: m.Name, Named: m.Named, Tokens: len(m.Tokens), Bytes: m.bytes, Used: m.used}
	for _, name := range m.files() {
		if x := s.segments[name]; x != nil {
			i.Bytes += x.bytes
		}
	}
	return i
}

// List returns an owner's sessions, the last used first.
func (s *Store) List(owner string) (list []Info) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for k, m := range s.sessions {
		if k.owner == owner && k.fingerprint == s.o.Fingerprint {
			list = append(list, s.info(m))
		}
	}
	slices.SortFunc(list, func(a, b Info) int {
		return cmp.Or(b.Used.Compare(a.Used), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// Get returns a session; ErrUnknown where there is none.
func (s *Store) Get(owner, name string) (Info, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	m := s.sessions[key{s.o.Fingerprint, owner, name}]
	if m == nil {
		return Info{}, ErrUnknown
	}
	return s.info(m), nil
}

// States reports whether there are states beside keys (Options.States).
func (s *Store) States() bool { return s.o.States }

// Bytes is what all files have.
func (s *Store) Bytes() int64 {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.bytes
}

// Delete removes a session, with what no other one has in common with it, and returns
// its tokens; ErrUnknown where there is none.
func (s *Store) Delete(owner, name string) (tokens []int32, err error) {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	m := s.sessions[key{s.o.Fingerprint, owner, name}]
	switch {
	case s.closed:
		return nil, ErrClosed
	case m == nil:
		return nil, ErrUnknown
	}
	return m.Tokens, s.drop(m)
}
