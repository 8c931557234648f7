package hub

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// MissingError says that a model, or a part of it, is not in the cache.
type MissingError struct {
	Name  Name
	Cache string
	// Have of Want files are there; Want is 0 where nothing is known of it.
	Have, Want int
}

func (e *MissingError) Error() string {
	if e.Want > 0 {
		return fmt.Sprintf("%s: %d of %d files are in the cache %s", e.Name, e.Have, e.Want, e.Cache)
	}
	return fmt.Sprintf("%s is not in the cache %s", e.Name, e.Cache)
}

// Found is a model in the cache.
type Found struct {
	Name     Name
	Commit   string
	Snapshot string // the folder of its files
	// Path is what a model is opened by: the snapshot, or a .gguf file in it.
	Path string
}

// Find finds a model in the cache, all of whose files are there, whichever tool put them
// there. Else the error is a *MissingError.
func (c *Cache) Find(n Name) (*Found, error) {
	gone := &MissingError{Name: n, Cache: c.Root}
	commit, err := c.resolve(n.Repo, n.Revision)
	if missing(err) {
		return nil, gone
	}
	if err != nil {
		return nil, err
	}
	f := &Found{Name: n, Commit: commit, Snapshot: c.Snapshot(n.Repo, commit)}
	m, err := c.ReadManifest(n.Repo, commit)
	if err != nil {
		return nil, err
	}
	wanted := wantedFiles(f.Snapshot, m)
	var paths []string
	for _, w := range wanted {
		paths = append(paths, w.Path)
	}
	if len(paths) == 0 {
		return nil, gone
	}
	use := paths
	switch hasConfig := slices.Contains(paths, "config.json") && slices.ContainsFunc(paths, isWeights); {
	case n.File != "" || !hasConfig:
		if use, err = PickGGUF(paths, n.File); err != nil {
			if !hasConfig && n.File == "" && len(ggufGroups(paths)) == 0 {
				use, f.Path = paths, f.Snapshot // what lacks is said when it is opened
				break
			}
			return nil, fmt.Errorf("%s: %w", n, err)
		}
		f.Path = filepath.Join(f.Snapshot, filepath.FromSlash(use[0]))
	default:
		use, f.Path = slices.DeleteFunc(slices.Clone(paths), isGGUF), f.Snapshot
	}
	for _, w := range wanted {
		if slices.Contains(use, w.Path) {
			gone.Want++
			if present(f.Snapshot, w) {
				gone.Have++
			}
		}
	}
	if gone.Have < gone.Want {
		return nil, gone
	}
	return f, nil
}

// isWeights reports whether a file of a snapshot holds weights of a folder.
func isWeights(p string) bool {
	return strings.HasSuffix(p, ".safetensors") || p == indexFile
}

const indexFile = "model.safetensors.index.json"

// wantedFiles are the files that a revision should have: those of its manifest; without
// one those that are there, and the shards of its index. A size of -1 is not known.
func wantedFiles(snapshot string, m *Manifest) []File {
	if m != nil {
		return m.Files
	}
	var list []File
	filepath.WalkDir(snapshot, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil
		}
		if rel, err := filepath.Rel(snapshot, p); err == nil {
			list = append(list, File{Path: filepath.ToSlash(rel), Size: -1})
		}
		return nil
	})
	for _, name := range shards(snapshot) {
		if !slices.ContainsFunc(list, func(f File) bool { return f.Path == name }) {
			list = append(list, File{Path: name, Size: -1})
		}
	}
	return list
}

// shards are the files that an index names.
func shards(snapshot string) (names []string) {
	data, err := readSmall(filepath.Join(snapshot, indexFile), maxManifest)
	if err != nil {
		return nil
	}
	var index struct {
		Map map[string]string `json:"weight_map"`
	}
	if json.Unmarshal(data, &index) != nil {
		return nil // said when it is opened
	}
	for _, name := range index.Map {
		if CheckPath(name) == nil && path.Base(name) == name {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// present reports whether a file lies in a snapshot, in its size.
func present(snapshot string, f File) bool {
	info, err := os.Stat(filepath.Join(snapshot, filepath.FromSlash(f.Path)))
	return err == nil && info.Mode().IsRegular() && (f.Size < 0 || info.Size() == f.Size)
}
