package hub

import (
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Share gives other machines the models of a cache: those that are whole and verified.
type Share struct {
	cache *Cache
	gated bool

	mu    sync.Mutex
	at    time.Time
	blobs map[Digest]string // where the content of a digest is
}

// shareAge is how long what is shared is remembered.
const shareAge = 5 * time.Second

// NewShare shares a cache; with gated also the models that the Hub gives to some alone.
func NewShare(c *Cache, gated bool) *Share { return &Share{cache: c, gated: gated} }

// shared reports whether a revision is given away, by its manifest.
func (s *Share) shared(m *Manifest) bool {
	if m == nil || m.Gated && !s.gated || len(m.Files) == 0 {
		return false
	}
	for _, f := range m.Files {
		info, err := os.Stat(s.path(m, f))
		if err != nil || info.Size() != f.Size || f.Verified == "" || info.ModTime().UnixNano() != f.Time {
			return false
		}
	}
	return true
}

func (s *Share) path(m *Manifest, f File) string {
	return filepath.Join(s.cache.Snapshot(m.Repo, m.Commit), filepath.FromSlash(f.Path))
}

// Manifest is that of a revision; fs.ErrNotExist where it is not shared.
func (s *Share) Manifest(repo, revision string) (*Manifest, error) {
	if CheckRepo(repo) != nil || !goodRevision(revision) {
		return nil, fs.ErrNotExist
	}
	commit, err := s.cache.Ref(repo, revision)
	if err != nil {
		return nil, fs.ErrNotExist
	}
	m, err := s.cache.ReadManifest(repo, commit)
	if err != nil {
		return nil, err
	}
	if !s.shared(m) {
		return nil, fs.ErrNotExist
	}
	return m, nil
}

// Open opens the content of a digest; fs.ErrNotExist where no shared model has it.
func (s *Share) Open(d Digest) (*os.File, error) {
	if !d.Valid() {
		return nil, fs.ErrNotExist
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.blobs == nil || time.Since(s.at) > shareAge {
		s.blobs, s.at = map[Digest]string{}, time.Now()
		models, err := s.cache.List()
		if err != nil {
			return nil, err
		}
		for _, model := range models {
			m, err := s.cache.ReadManifest(model.Repo, model.Commit)
			if err != nil || !s.shared(m) {
				continue
			}
			for _, f := range m.Files {
				s.blobs[f.Hash] = s.path(m, f)
			}
		}
	}
	path, ok := s.blobs[d]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return os.Open(path)
}
