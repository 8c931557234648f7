package session

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"windrow/internal/atomicfile"
)

// Session is a conversation to be saved.
type Session struct {
	// Owner is whose it is; Name what it is called, "": by what it holds. A session takes
	// the place of one of its name.
	Owner, Name string
	// Salt parts what is found: only who looks with the same one finds it.
	Salt string
	// Tokens are saved up to the last whole page of them, or, where a model has states, to
	// the last of States.
	Tokens []int32
	// States are what is saved of a model's states (Options.States), in rising order.
	States []States
	// Used is when it was last used; the zero time: now.
	Used time.Time
}

// States are those behind some numbers of a session's tokens: From to End.
type States struct {
	From, End int
	// Bytes is what Export gives.
	Bytes  int
	Export func(dst []byte) error
}

// whole cuts a session to what can be saved of it.
func (s *Store) whole(x Session) (tokens []int32) {
	if !s.o.States {
		return x.Tokens[:len(x.Tokens)/s.o.PageTokens*s.o.PageTokens]
	}
	n := len(x.States)
	if n == 0 || x.States[n-1].End < s.o.PageTokens {
		return nil
	}
	return x.Tokens[:min(x.States[n-1].End, len(x.Tokens))]
}

// Save saves a session, and returns once it is durable: then it is there whatever ends
// the process. export gives a page's bytes; it is asked, in order, for those that the
// store does not have yet. Sessions without a name that begin this one go.
//
// Errors: ErrShort, ErrClosed, a *FullError, what export returned, ctx's, or what the
// disk said. After one the session is as it was before.
func (s *Store) Save(ctx context.Context, x Session, export func(page int, dst []byte) error) (Info, error) {
	s.saving.Lock()
	defer s.saving.Unlock()
	tokens := s.whole(x)
	if len(tokens) == 0 {
		return Info{}, ErrShort
	}
	headers := cut(s.o.root(x.Salt), s.o.Fingerprint, s.o.PageTokens, s.o.PageBytes, tokens)
	m := &manifest{
		Version: manifestVersion, Fingerprint: s.o.Fingerprint, Owner: x.Owner, Name: x.Name, Named: x.Name != "",
		Root: headers[0].Parent, PageTokens: s.o.PageTokens, Tokens: slices.Clone(tokens), used: x.Used,
	}
	for i := range headers {
		headers[i].Tokens = m.Tokens[i*segmentPages*s.o.PageTokens:][:len(headers[i].Tokens)]
		m.Segments = append(m.Segments, headers[i].name())
	}
	exports := map[hash]func(dst []byte) error{}
	for _, y := range x.States {
		if y.From < 0 || y.From > y.End || y.End < 1 || y.End > len(tokens) || y.Bytes < 1 || y.Bytes > maxStates || len(m.States) == mostPlaces {
			return Info{}, fmt.Errorf("save a session: %d bytes of states from token %d to %d of %d", y.Bytes, y.From, y.End, len(tokens))
		}
		p := place{From: y.From, End: y.End, Bytes: y.Bytes}
		h := p.cut(headers[:len(m.Segments)])
		p.Name = h.name()
		m.States, headers = append(m.States, p), append(headers, h)
		exports[p.Name] = y.Export
	}
	if m.used.IsZero() {
		m.used = time.Now()
	}
	if !m.Named {
		m.Name = "auto-" + m.Segments[len(m.Segments)-1].String()[:16]
	}
	data, err := json.Marshal(m)
	if err != nil {
		return Info{}, err
	}
	m.bytes = int64(len(data))
	if info, done, err := s.reserve(m, headers); done || err != nil {
		return info, err
	}
	for i, name := range m.files() {
		pages := func(page int, dst []byte) error { return export(i*segmentPages+page, dst) }
		if headers[i].State != nil {
			pages = func(_ int, dst []byte) error { return exports[name](dst) }
		}
		if err := s.writeSegment(ctx, &headers[i], name, pages); err != nil {
			s.giveUp(m)
			return Info{}, err
		}
	}
	// Now that all segments have their names for good, the session may have them.
	if err := s.sync(s.segmentFolder()); err != nil {
		s.giveUp(m)
		return Info{}, err
	}
	path := s.sessionPath(m.key())
	err = s.write(path, true, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
	if err != nil {
		s.giveUp(m)
		return Info{}, fmt.Errorf("save a session: %w", err)
	}
	os.Chtimes(path, m.used, m.used)
	return s.replace(m), nil
}

// reserve counts the session as a user of its segments, those that are not there yet
// among them, and makes room for them. It is done where a session without a name is
// there already.
func (s *Store) reserve(m *manifest, headers []header) (info Info, done bool, err error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.closed {
		return Info{}, false, ErrClosed
	}
	if old := s.sessions[m.key()]; old != nil && slices.Equal(old.Segments, m.Segments) && old.goesBack(m) {
		s.use(old, m.used)
		return s.info(old), true, nil
	}
	if !m.Named {
		for k, other := range s.sessions {
			if k.fingerprint == s.o.Fingerprint && begins(m, other) && other.goesBack(m) {
				s.use(other, m.used)
				return s.info(other), true, nil
			}
		}
	}
	for i, name := range m.files() {
		s.refer(name, headers[i], headers[i].size())
	}
	for s.o.Limit > 0 && s.bytes+m.bytes > s.o.Limit {
		if !s.dropOldest(m.key()) {
			err := &FullError{s.bytes + m.bytes, s.o.Limit}
			s.release(m.files())
			return Info{}, false, err
		}
	}
	return Info{}, false, nil
}

// begins reports whether all of a session is the beginning of another one's, in the
// same chain.
func begins(m, other *manifest) bool {
	return m.Root == other.Root && m.Owner == other.Owner && len(m.Tokens) <= len(other.Tokens) &&
		slices.Equal(m.Tokens, other.Tokens[:len(m.Tokens)])
}

// goesBack reports whether a session can go back to all places of another.
func (m *manifest) goesBack(other *manifest) bool {
	return !slices.ContainsFunc(other.States, func(p place) bool { return !slices.Contains(m.States, p) })
}

// use notes when a session was used.
func (s *Store) use(m *manifest, at time.Time) {
	if at.After(m.used) {
		m.used = at
		os.Chtimes(s.sessionPath(m.key()), at, at)
	}
}

// writeSegment writes a segment that is not there.
func (s *Store) writeSegment(ctx context.Context, h *header, name hash, export func(page int, dst []byte) error) error {
	s.mutex.Lock()
	x := s.segments[name] // reserved: it stays
	there := x.there
	s.mutex.Unlock()
	if there {
		return nil
	}
	err := s.write(s.segmentPath(name), false, func(w io.Writer) error {
		return h.write(w, func(page int, dst []byte) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return export(page, dst)
		})
	})
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("save a session: %w", err)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	x.there = true
	return nil
}

// write writes a file whole or not at all.
func (s *Store) write(path string, durable bool, write func(io.Writer) error) error {
	return atomicfile.Options{Mode: 0o600, Durable: durable, Step: s.o.step}.Write(path, write)
}

// sync makes a folder's names durable.
func (s *Store) sync(folder string) error {
	if s.o.step != nil {
		s.o.step("sync folder")
	}
	return atomicfile.SyncFolder(folder)
}

// giveUp forgets a session that could not be saved.
func (s *Store) giveUp(m *manifest) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.release(m.files())
}

// replace makes a session that is on disk the one of its name, and drops those that it
// stands for.
func (s *Store) replace(m *manifest) Info {
	if s.o.step != nil {
		s.o.step("replace")
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	old := s.sessions[m.key()]
	s.sessions[m.key()] = m
	s.bytes += m.bytes
	if old != nil {
		s.bytes -= old.bytes
		s.release(old.files())
	}
	for k, other := range s.sessions {
		if other != m && !other.Named && k.fingerprint == s.o.Fingerprint && begins(other, m) {
			s.drop(other) // what cannot be removed is found, and dropped, later
		}
	}
	return s.info(m)
}
