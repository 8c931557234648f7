package engine

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"

	"windrow/cpu"
	"windrow/internal/atomicfile"
)

// NoFolder is the Folder of Measurements that are not kept.
const NoFolder = "off"

// Measurements are what was measured of this machine, each in a file: c(rows) by
// model, what its drafts are worth, and which of two kernels is the faster. They change speed, and nothing
// else but wedlm's text where its window adapts.
type Measurements struct {
	// Folder is where the files lie, and in its folder kernels those that a GPU's driver
	// has translated; "" is windrow in the user's cache folder, NoFolder nowhere.
	Folder string
	// Build names the program: another build measures anew. "" is what the Go
	// tool has recorded of it.
	Build string
}

// The kinds of measurements: they begin the files' names.
const (
	costKind    = "cost"
	verdictKind = "verdict"
	// learnedKind is what drafts of a model were seen to be worth.
	learnedKind = "learned"
)

// maxMeasurement bounds what is read of a file: a real one has 1 KiB.
const maxMeasurement = 64 << 10

// measurement is what a file holds. The key is there in full, so that a file tells
// what it is about and a collision of names is noticed.
type measurement struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
}

var _ cpu.Verdicts = Measurements{}

// Read implements cpu.Verdicts.
func (m Measurements) Read(key string) (faster, known bool) {
	var verdict *bool
	if !m.read(verdictKind, key, &verdict) || verdict == nil {
		return false, false
	}
	return *verdict, true
}

// Write implements cpu.Verdicts.
func (m Measurements) Write(key string, faster bool) { m.write(verdictKind, key, faster) }

// read sets v to what was measured of a key, and reports whether there is a file
// that can be read.
func (m Measurements) read(kind, key string, v any) bool {
	there, usable := m.find(kind, key, v)
	return there && usable
}

// find is read; it also says whether there is a file at all.
func (m Measurements) find(kind, key string, v any) (there, usable bool) {
	path, key := m.path(kind, key)
	if path == "" {
		return false, false
	}
	f, err := os.Open(path)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist), false
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxMeasurement))
	if err != nil {
		return true, false
	}
	return true, parseMeasurement(data, key, v)
}

// parseMeasurement sets v to the value of a file about a key.
func parseMeasurement(data []byte, key string, v any) bool {
	var file measurement
	return json.Unmarshal(data, &file) == nil && file.Key == key && json.Unmarshal(file.Value, v) == nil
}

// write keeps v. What cannot be written is no error: the next run measures again.
func (m Measurements) write(kind, key string, v any) {
	path, key := m.path(kind, key)
	value, err := json.Marshal(v)
	if path == "" || err != nil || os.MkdirAll(filepath.Dir(path), 0o755) != nil {
		return
	}
	_ = atomicfile.Write(path, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(measurement{key, value})
	})
}

// path is where the measurement of a key is kept, "" for nowhere, and the key with
// the build.
func (m Measurements) path(kind, key string) (path, full string) {
	build := m.Build
	if build == "" {
		build = recordedBuild()
	}
	full = build + "; " + key
	folder := m.folder()
	if folder == "" {
		return "", full
	}
	sum := sha256.Sum256([]byte(full))
	return filepath.Join(folder, fmt.Sprintf("%s-%x.json", kind, sum[:8])), full
}

// folder is where the files lie, "" is nowhere.
func (m Measurements) folder() string {
	switch m.Folder {
	case NoFolder:
		return ""
	case "":
		user, err := os.UserCacheDir()
		if err != nil {
			return ""
		}
		return filepath.Join(user, "windrow")
	}
	return m.Folder
}

// Kernels is where a GPU's driver keeps kernels as it has translated them; "" is where it does
// by itself.
func (m Measurements) Kernels() string {
	if folder := m.folder(); folder != "" {
		return filepath.Join(folder, "kernels")
	}
	return ""
}

// recordedBuild names the program by what the Go tool has recorded: its main
// package, its version, and the commit.
var recordedBuild = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown build"
	}
	name := info.Path + " " + info.Main.Version + " " + info.GoVersion
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" || s.Key == "vcs.modified" {
			name += " " + s.Value
		}
	}
	return name
})
