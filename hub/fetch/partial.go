package fetch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"windrow/hub"
)

// Partial is a file that a download has left before it was whole.
type Partial struct {
	// Repo and Path are of the model that wants it, where that is known; else Path is the
	// part's name.
	Repo    string    `json:"repo,omitempty"`
	Path    string    `json:"path"`
	Part    string    `json:"part"`
	Kept    int64     `json:"kept"`
	Size    int64     `json:"size"`
	Changed time.Time `json:"changed"`
}

// Partials lists the files in a cache that are not whole.
func Partials(c *hub.Cache) (list []Partial, err error) {
	entries, err := os.ReadDir(c.Parts())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	wanted := map[hub.Digest]Partial{}
	models, _ := c.List()
	for _, m := range models {
		if manifest, err := c.ReadManifest(m.Repo, m.Commit); err == nil && manifest != nil {
			for _, f := range manifest.Files {
				wanted[f.Hash] = Partial{Repo: m.Repo, Path: f.Path}
			}
		}
	}
	for _, e := range entries {
		name, isJournal := strings.CutSuffix(e.Name(), ".journal")
		info, err := e.Info()
		if err != nil || !isJournal {
			continue
		}
		digest, _, _ := strings.Cut(name, "-")
		p := wanted[hub.Digest(digest)]
		if p.Path == "" {
			p.Path = name
		}
		p.Part, p.Changed = filepath.Join(c.Parts(), name), info.ModTime()
		if j := readJournalFile(filepath.Join(c.Parts(), e.Name())); j != nil {
			p.Kept, p.Size = j.have(), j.size
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b Partial) int { return strings.Compare(a.Repo+"/"+a.Path, b.Repo+"/"+b.Path) })
	return list, err
}
