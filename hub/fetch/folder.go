package fetch

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"windrow/hub"
)

// PullLocal puts a model of this machine into the cache: a folder, or a .gguf file. Files
// are copied, or share their blocks where the file system can: their owner may change
// them. The model is called local/NAME afterwards.
func PullLocal(ctx context.Context, cache *hub.Cache, path string, o Options) (*Result, error) {
	o = o.withDefaults()
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	dir, paths := full, []string(nil)
	if info.IsDir() {
		if paths, err = modelFiles(full); err != nil {
			return nil, err
		}
	} else {
		dir, paths = filepath.Dir(full), []string{filepath.Base(full)}
		if !strings.HasSuffix(strings.ToLower(full), ".gguf") {
			return nil, fmt.Errorf("%s: want a folder, or a .gguf file", path)
		}
	}
	base := strings.TrimSuffix(filepath.Base(full), filepath.Ext(full))
	if info.IsDir() {
		base = filepath.Base(full)
	}
	p := newPull(cache, hub.Name{Repo: plainRepo("local", base), Revision: hub.DefaultRevision}, o, nil)
	before, _ := cache.Ref(p.repo, p.name.Revision)
	plan := &Plan{Free: -1, Files: []PlannedFile{}}
	for _, name := range paths {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s: want a file", filepath.Join(dir, name))
		}
		f := hub.File{Path: name, Size: info.Size()}
		p.wants = append(p.wants, f)
		plan.Files = append(plan.Files, PlannedFile{File: f, State: "missing"})
		plan.Bytes += f.Size
		plan.Missing += f.Size
	}
	if i := slices.Index(paths, "config.json"); i >= 0 && o.Check != nil {
		data, err := os.ReadFile(filepath.Join(dir, "config.json"))
		if err == nil {
			err = o.Check(data)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	if i := slices.IndexFunc(p.wants, isGGUF); i >= 0 && o.CheckGGUF != nil {
		head, err := headOf(filepath.Join(dir, p.wants[i].Path))
		if err == nil {
			err = o.CheckGGUF(head)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, p.wants[i].Path), err)
		}
	}
	if free, ok := freeSpace(existing(cache.Root)); ok {
		plan.Free = free
	}
	o.Event(Event{Event: "plan", Name: p.name.String(), Plan: plan})
	if o.DryRun {
		return &Result{Name: p.name.String(), Files: len(paths), Bytes: plan.Bytes}, nil
	}
	if err := p.room(plan); err != nil {
		return nil, err
	}
	if err := cache.Begin(); err != nil {
		return nil, writable(cache, err)
	}
	copies, err := p.copyAll(ctx, dir)
	defer func() {
		for _, c := range copies {
			os.Remove(c) // those that did not become blobs
		}
	}()
	if err != nil {
		return nil, writable(cache, err)
	}
	// A commit's number is that of what is in it.
	h := sha256.New()
	for _, f := range p.wants {
		fmt.Fprintf(h, "%s %s %d\n", f.Hash, f.Path, f.Size)
	}
	p.commit = fmt.Sprintf("%x", h.Sum(nil))[:40]
	if err := p.announce(full, true); err != nil {
		return nil, writable(cache, err)
	}
	for i, f := range p.wants {
		place := func() error { return cache.Place(p.repo, p.commit, f, copies[i]) }
		if _, err := hub.CheckContent(ctx, cache.Blob(p.repo, f.Hash), f); err == nil {
			// An earlier revision has it: a new file in its place would have to be verified there.
			place = func() error { return cache.Link(p.repo, p.commit, f) }
		}
		if err := place(); err != nil {
			return nil, writable(cache, err)
		}
		info, err := os.Stat(p.snapshotFile(f))
		if err != nil {
			return nil, err
		}
		if err := p.note(f, info.ModTime()); err != nil {
			return nil, err
		}
		o.Event(Event{Event: "verified", File: f.Path, Done: f.Size})
	}
	return p.complete(before)
}

// modelFiles are the files of a folder that make the model.
func modelFiles(dir string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []hub.File
	for _, e := range entries {
		if info, err := os.Stat(filepath.Join(dir, e.Name())); err == nil && info.Mode().IsRegular() && hub.CheckPath(e.Name()) == nil {
			files = append(files, hub.File{Path: e.Name()})
		}
	}
	taken, err := hub.Take(files, "")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	for _, f := range taken {
		paths = append(paths, f.Path)
	}
	return paths, nil
}

// copyAll copies the files into the folder of parts, and hashes the copies: the files
// themselves may change meanwhile.
func (p *pull) copyAll(ctx context.Context, dir string) (copies []string, err error) {
	for i := range p.wants {
		f := &p.wants[i]
		to := ownPart(filepath.Join(p.cache.Parts(), "local"))
		copies = append(copies, to)
		if err := hub.Duplicate(filepath.Join(dir, f.Path), to, false); err != nil {
			return copies, err
		}
		digest, size, err := hub.HashFile(ctx, to)
		if err != nil {
			return copies, err
		}
		f.Hash, f.Size = digest, size
	}
	return copies, nil
}
