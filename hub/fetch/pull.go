package fetch

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"windrow/hub"
	"windrow/internal/atomicfile"
	"windrow/internal/units"
)

// Pull fetches a model from the Hub, or a mirror, into the cache: what of it is not there
// yet. Every file is verified. A branch or tag leads to the new commit when all of it is
// there, not before. What an error or the end of ctx leaves behind is taken up by the
// next call.
func Pull(ctx context.Context, cache *hub.Cache, name hub.Name, o Options) (*Result, error) {
	o = o.withDefaults()
	base, err := parseEndpoint(o.Endpoint)
	if err != nil {
		return nil, err
	}
	c := newClient(base, o.Token, o.Agent, o.Connections, o.roots)
	defer c.close()
	p := newPull(cache, name, o, c)
	p.source = &hubSource{client: c, try: p.try}
	if p.peers, err = newPeers(o); err != nil {
		return nil, err
	}
	for _, s := range p.peers {
		defer s.client.close()
	}
	return p.do(ctx)
}

// pull is one model that is fetched.
type pull struct {
	*transfer
	name  hub.Name
	gated bool
	wants []hub.File
	// copies are cache.Copies, when it was first asked.
	copies func() map[hub.Digest][]string
}

func newPull(cache *hub.Cache, name hub.Name, o Options, c *client) *pull {
	p := &pull{transfer: &transfer{o: o, client: c, cache: cache, repo: name.Repo}, name: name}
	p.transfer.done, p.transfer.stillLacks = p.place, p.lacks
	p.copies = sync.OnceValue(cache.Copies)
	return p
}

// elsewhere lists where the cache has the content of a file besides the repository's blobs
// and the revision itself.
func (p *pull) elsewhere(f hub.File) []string {
	own := p.snapshotFile(f)
	others := slices.DeleteFunc(slices.Clone(p.copies()[f.Hash]), func(path string) bool { return path == own })
	return append(p.cache.Elsewhere(p.repo, f), others...)
}

// do is Pull from a source.
func (p *pull) do(ctx context.Context) (*Result, error) {
	if p.o.Offline {
		return p.offline()
	}
	before, _ := p.cache.Ref(p.repo, p.name.Revision)
	p.commit = p.name.Revision
	if !hub.IsCommit(p.commit) {
		var err error
		if p.commit, p.gated, err = p.source.revision(ctx, p.repo, p.name.Revision); err != nil {
			return nil, told(p.source, p.repo, p.name.Revision, err)
		}
	}
	if r, err := p.upToDate(before); r != nil || err != nil {
		return r, err
	}
	all, err := p.source.listing(ctx, p.repo, p.commit)
	if err != nil {
		return nil, told(p.source, p.repo, p.name.Revision, err)
	}
	if p.wants, err = hub.Take(all, p.name.File); err != nil {
		return nil, fmt.Errorf("%s at %s: %w", p.repo, p.source.name(), err)
	}
	if err := hub.CheckFiles(p.wants); err != nil {
		return nil, fmt.Errorf("%s at %s: %w", p.repo, p.source.name(), err)
	}
	known, err := p.cache.ReadManifest(p.repo, p.commit)
	if err != nil {
		return nil, err
	}
	if known != nil {
		// A hub that says otherwise than before of the same commit is not believed.
		if err := known.Want(p.wants); err != nil {
			return nil, err
		}
	}
	plan := p.plan(known)
	if p.o.DryRun {
		p.o.Event(Event{Event: "plan", Name: p.name.String(), Commit: p.commit, Plan: plan})
		return &Result{Name: p.name.String(), Commit: p.commit, Files: len(p.wants), Bytes: plan.Bytes, Before: other(before, p.commit), Requests: p.requests.Load()}, nil
	}
	if err := p.checkConfig(ctx); err != nil {
		return nil, err
	}
	if err := p.checkHead(ctx, plan); err != nil {
		return nil, err
	}
	p.o.Event(Event{Event: "plan", Name: p.name.String(), Commit: p.commit, Plan: plan})
	if err := p.room(plan); err != nil {
		return nil, err
	}
	if err := p.prepare(); err != nil {
		return nil, writable(p.cache, err)
	}
	if err := p.fetchAll(ctx); err != nil {
		return nil, writable(p.cache, err)
	}
	return p.complete(before)
}

// other is a commit where it is another one.
func other(before, now string) string {
	if before == now {
		return ""
	}
	return before
}

// writable makes one line of what a cache that cannot be written says.
func writable(c *hub.Cache, err error) error {
	if errors.Is(err, os.ErrPermission) || isReadOnly(err) {
		return fmt.Errorf("the cache %s cannot be written: %w", c.Root, err)
	}
	return err
}

// upToDate is the result where all is there, and was verified; nil where it is not.
func (p *pull) upToDate(before string) (*Result, error) {
	m, err := p.cache.ReadManifest(p.repo, p.commit)
	if err != nil || m == nil || !slices.Contains(m.Asked, p.name.File) {
		return nil, err
	}
	files, err := hub.Take(m.Files, p.name.File)
	if err != nil {
		return nil, nil
	}
	for _, f := range files {
		if !p.verified(f) {
			return nil, nil
		}
	}
	p.wants = files
	if p.o.DryRun {
		plan := p.plan(m)
		p.o.Event(Event{Event: "plan", Name: p.name.String(), Commit: p.commit, Plan: plan})
		return &Result{Name: p.name.String(), Commit: p.commit, Files: len(files), Bytes: plan.Bytes, Requests: p.requests.Load()}, nil
	}
	return p.complete(before)
}

// verified reports whether a file lies in the snapshot as it was when it was hashed.
func (p *pull) verified(f hub.File) bool {
	info, err := os.Stat(p.snapshotFile(f))
	return err == nil && info.Mode().IsRegular() && info.Size() == f.Size && f.Verified != "" && info.ModTime().UnixNano() == f.Time
}

func (p *pull) snapshotFile(f hub.File) string {
	return filepath.Join(p.cache.Snapshot(p.repo, p.commit), filepath.FromSlash(f.Path))
}

// offline is the result of what is in the cache, whoever put it there.
func (p *pull) offline() (*Result, error) {
	found, err := p.cache.Find(p.name)
	if err != nil {
		return nil, err
	}
	r := &Result{Name: p.name.String(), Commit: found.Commit, Path: found.Path}
	p.o.Event(Event{Event: "done", Name: r.Name, Commit: r.Commit, Result: r})
	return r, nil
}

// plan says what is there and what lacks.
func (p *pull) plan(known *hub.Manifest) *Plan {
	plan := &Plan{Files: []PlannedFile{}, Free: -1}
	if free, ok := freeSpace(existing(p.cache.Root)); ok {
		plan.Free = free
	}
	for _, f := range p.wants {
		if old, ok := known.File(f.Path); ok {
			f = old
		}
		x := PlannedFile{File: f, State: "missing"}
		plan.Bytes += f.Size
		info, err := os.Stat(p.snapshotFile(f))
		if err != nil {
			info, err = os.Stat(p.cache.Blob(p.repo, f.Hash))
		}
		switch {
		case err == nil && info.Size() == f.Size && (f.Verified == "" || f.Time == info.ModTime().UnixNano()):
			x.State = "here"
			plan.Here += f.Size
		case len(p.elsewhere(f)) > 0:
			x.State = "shared"
			plan.Shared += f.Size
		default:
			if j := readJournalFile(p.partPath(f) + ".journal"); j != nil && j.key == fileKey(f.Hash) && j.size == f.Size && j.pieceSize == p.o.pieceSize {
				x.State, x.Kept = "partial", j.have()
			}
			plan.Kept += x.Kept
			plan.Missing += f.Size - x.Kept
		}
		plan.Files = append(plan.Files, x)
	}
	return plan
}

func (p *pull) partPath(f hub.File) string { return filepath.Join(p.cache.Parts(), string(f.Hash)) }

// existing is a folder, or the nearest one above it that is there.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || filepath.Dir(dir) == dir {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// room compares what lacks, 1 % and 256 MiB with what the file system has. Parts have
// their blocks already, where the file system gives them ahead.
func (p *pull) room(plan *Plan) error {
	need := plan.Missing
	for _, f := range plan.Files {
		if f.State == "partial" {
			need -= max(0, min(allocated(p.partPath(f.File)), f.Size)-f.Kept)
		}
	}
	if need += need/100 + 256<<20; !p.o.noRoom && plan.Missing > 0 && plan.Free >= 0 && plan.Free < need {
		return fmt.Errorf("%s: %s is to come, and %s has %s free: want %s", p.name, units.Bytes(plan.Missing), p.cache.Root, units.Bytes(plan.Free), units.Bytes(need))
	}
	return nil
}

// prepare writes down what is wanted: from now on the cache knows what lacks.
func (p *pull) prepare() error {
	if err := p.cache.Begin(); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Join(p.cache.Repo(p.repo), "blobs"), p.cache.Snapshot(p.repo, p.commit), filepath.Dir(p.cache.LockFile(p.repo, p.wants[0].Hash))} {
		if err := atomicfile.MakeFolders(dir); err != nil {
			return err
		}
	}
	return p.cache.UpdateManifest(p.repo, p.commit, func(m *hub.Manifest) error {
		if m.Source == "" {
			m.Source = p.source.name()
		}
		m.Gated = m.Gated || p.gated
		m.Pinned = m.Pinned || hub.IsCommit(p.name.Revision)
		if !slices.Contains(m.Asked, p.name.File) {
			m.Asked = append(m.Asked, p.name.File)
		}
		return m.Want(p.wants)
	})
}

// maxConfig bounds a config.json that is read into memory.
const maxConfig = 16 << 20

// checkConfig asks whether the model can be run, before its weights are fetched.
func (p *pull) checkConfig(ctx context.Context) error {
	i := slices.IndexFunc(p.wants, func(f hub.File) bool { return f.Path == "config.json" })
	weights := slices.ContainsFunc(p.wants, func(f hub.File) bool { return filepath.Ext(f.Path) == ".safetensors" })
	if i < 0 || p.o.Check == nil || !weights {
		return nil
	}
	f := p.wants[i]
	if f.Size > maxConfig {
		return fmt.Errorf("config.json: %d bytes: want at most %d", f.Size, maxConfig)
	}
	data, err := os.ReadFile(p.snapshotFile(f))
	if err != nil || !rightBytes(f, data) {
		if data, err = p.smallFile(ctx, f); err != nil {
			return told(p.source, p.repo, p.name.Revision, err)
		}
	}
	if err := p.o.Check(data); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// rightBytes reports whether a content is a file's.
func rightBytes(f hub.File, data []byte) bool {
	h := f.Hash.NewHash(f.Size)
	h.Write(data)
	return int64(len(data)) == f.Size && hub.DigestOf(h) == f.Hash
}

// smallFile fetches a file into memory, and verifies it.
func (p *pull) smallFile(ctx context.Context, f hub.File) (data []byte, err error) {
	u := p.source.address(p.repo, p.commit, f)
	err = p.try(ctx, f.Path, func() error {
		data, _, err = p.client.small(ctx, u, f.Size)
		if err == nil && !rightBytes(f, data) {
			err = fmt.Errorf("%s: %s gives %d bytes with another hash: want %s", f.Path, p.source.name(), len(data), f.Hash)
		}
		return err
	})
	return data, err
}

// fetchAll brings what lacks.
func (p *pull) fetchAll(ctx context.Context) error {
	for _, f := range p.wants {
		x := &file{File: f, key: fileKey(f.Hash), newHash: func() hash.Hash { return f.Hash.NewHash(f.Size) }}
		if lacks, err := p.lacks(ctx, f); err != nil {
			return err
		} else if lacks {
			p.files = append(p.files, x)
		}
	}
	if len(p.files) == 0 {
		return nil
	}
	return p.run(ctx)
}

// lacks reports whether a file has to be fetched, and puts it in its place where its
// content is in the cache. Content that nobody is known to have verified is hashed.
func (p *pull) lacks(ctx context.Context, f hub.File) (bool, error) {
	m, err := p.cache.ReadManifest(p.repo, p.commit)
	if err != nil {
		return false, err
	}
	if old, ok := m.File(f.Path); ok && p.verified(old) {
		return false, nil
	}
	for _, path := range []string{p.snapshotFile(f), p.cache.Blob(p.repo, f.Hash)} {
		info, err := os.Stat(path)
		if err != nil || info.Size() != f.Size {
			continue
		}
		if info, err = hub.CheckContent(ctx, path, f); err != nil {
			if ctx.Err() != nil {
				return false, context.Cause(ctx)
			}
			continue // it is replaced by what is fetched
		}
		if path != p.snapshotFile(f) {
			if err := p.cache.Link(p.repo, p.commit, f); err != nil {
				return false, err
			}
		}
		return false, p.note(f, info.ModTime())
	}
	for _, path := range p.elsewhere(f) {
		if _, err := hub.CheckContent(ctx, path, f); err != nil {
			continue
		}
		temporary := p.partPath(f) + ".shared"
		os.Remove(temporary)
		if err := hub.Duplicate(path, temporary, true); err != nil {
			return false, err
		}
		if err := p.cache.Place(p.repo, p.commit, f, temporary); err != nil {
			return false, err
		}
		info, err := os.Stat(p.snapshotFile(f))
		if err != nil {
			return false, err
		}
		return false, p.note(f, info.ModTime())
	}
	return true, ctx.Err()
}

// note writes into the manifest that a file is verified.
func (p *pull) note(f hub.File, changed time.Time) error {
	return p.cache.UpdateManifest(p.repo, p.commit, func(m *hub.Manifest) error {
		m.Note(f, true, changed, time.Now())
		return nil
	})
}

// place makes a file that is whole and right a part of the model.
func (p *pull) place(f *file) error {
	if err := p.cache.Place(p.repo, p.commit, f.File, f.part.path); err != nil {
		return err
	}
	info, err := os.Stat(p.snapshotFile(f.File))
	if err != nil {
		return err
	}
	return p.note(f.File, info.ModTime())
}

// complete makes the branch lead to the commit, all of which is there.
func (p *pull) complete(before string) (*Result, error) {
	if err := p.cache.SetRef(p.repo, p.name.Revision, p.commit); err != nil {
		return nil, writable(p.cache, err)
	}
	found, err := p.cache.Find(hub.Name{Repo: p.repo, Revision: p.commit, File: p.name.File})
	if err != nil {
		return nil, err
	}
	for _, f := range p.wants {
		// Of a process that ended after the part was a blob: perhaps after all was there.
		journal := p.partPath(f) + ".journal"
		if _, err := os.Lstat(journal); err != nil {
			continue
		}
		if _, err := os.Lstat(p.partPath(f)); err != nil {
			atomicfile.Remove(journal)
		}
	}
	r := &Result{Name: p.name.String(), Commit: p.commit, Path: found.Path, Files: len(p.wants), Before: other(before, p.commit),
		Fetched: p.fetched.Load(), Requests: p.requests.Load()}
	for _, s := range p.peers {
		r.FromPeers += s.fetched.Load()
	}
	var old *hub.Manifest
	if r.Before != "" {
		old, _ = p.cache.ReadManifest(p.repo, before)
	}
	for _, f := range p.wants {
		r.Bytes += f.Size
		if was, ok := old.File(f.Path); r.Before != "" && (!ok || was.Hash != f.Hash) {
			r.Changed++
			r.ChangedBytes += f.Size
		}
	}
	p.o.Event(Event{Event: "done", Name: r.Name, Commit: r.Commit, Result: r})
	return r, nil
}

// hexKey is the name of a part of another content than a digest's.
func hexKey(key [32]byte) string { return hex.EncodeToString(key[:]) }
