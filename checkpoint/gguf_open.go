package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"windrow/architecture"
	"windrow/backend"
)

// Open opens a model by what path is: a Hugging Face model folder, or a GGUF
// file.
func Open(path string) (*Checkpoint, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("model %s: no such file or folder", path)
	case err != nil:
		return nil, fmt.Errorf("model: %w", err)
	case info.IsDir():
		return OpenFolder(path)
	}
	d, err := folderOf(path)
	if err != nil {
		return nil, err
	}
	f, _, err := d.open(d.named)
	if err != nil {
		return nil, err
	}
	magic := make([]byte, len(ggufMagic))
	_, err = io.ReadFull(f, magic)
	f.Close()
	if err != nil || string(magic) != ggufMagic {
		return nil, fmt.Errorf("model %s: is no GGUF file: want one, or the folder that holds %s and %s", path, ConfigFile, WeightsFile)
	}
	return OpenGGUF(path)
}

// folderOf is the folder of a file that a user named.
func folderOf(path string) (*folder, error) {
	d, err := newFolder(filepath.Dir(path))
	if err == nil {
		d.named = filepath.Base(path)
	}
	return d, err
}

// OpenGGUF opens a GGUF file, memory-mapped: tensors stay in their blocks,
// under the names of the Hugging Face checkpoint. The small files of a model
// folder are made from the metadata. The first of several files that make one
// model opens all of them.
func OpenGGUF(path string) (*Checkpoint, error) {
	d, err := folderOf(path)
	if err != nil {
		return nil, err
	}
	data, err := d.weights(d.named)
	if err != nil {
		return nil, err
	}
	parts := &folder{} // where the other files lie
	c, err := func() (*Checkpoint, error) {
		g, err := ReadGGUF(data)
		if err != nil {
			return nil, err
		}
		resolved, err := filepath.EvalSymlinks(path)
		if err != nil {
			return nil, d.failed(d.named, err)
		}
		err = g.joinParts(path, resolved, func(dir string) (*folder, error) {
			of, err := newFolder(dir)
			if err == nil {
				parts = of
			}
			return of, err
		})
		if err != nil {
			return nil, err
		}
		return ggufCheckpoint(g, path, func() error { return errors.Join(d.close(), parts.close()) })
	}()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), d.close(), parts.close())
	}
	c.mapped = append(d.maps[:len(d.maps):len(d.maps)], parts.maps...)
	return c, nil
}

// NewGGUF is OpenGGUF of a whole model in memory. Weights are not copied.
func NewGGUF(data []byte) (*Checkpoint, error) {
	g, err := ReadGGUF(data)
	if err != nil {
		return nil, err
	}
	p, err := g.part()
	switch {
	case err != nil:
		return nil, fmt.Errorf("gguf metadata: %w", err)
	case p.count > 1:
		return nil, fmt.Errorf("gguf metadata: split.count: one of %d files: want a whole model", p.count)
	}
	return ggufCheckpoint(g, "gguf", func() error { return nil })
}

func ggufCheckpoint(g *GGUF, name string, unmap func() error) (*Checkpoint, error) {
	config, err := g.configJSON()
	if err != nil {
		return nil, fmt.Errorf("gguf metadata: %w", err)
	}
	c := &Checkpoint{files: &ggufFiles{g, name, unmap}, generation: &GenerationConfig{}, tensors: map[string]backend.Tensor{}}
	if c.config, err = ParseConfig(config); err != nil {
		return nil, fmt.Errorf("gguf metadata, as a config.json: %w", err)
	}
	c.generation.EOSTokenIDs = c.config.EOSTokenIDs
	a := architecture.Of(c.config)
	c.config.MTPLayers = g.draftLayers(c.config)
	for _, raw := range g.Tensors {
		p, name, ok := a.FromGGUF(c.config, raw.Name)
		if !ok {
			return nil, fmt.Errorf("gguf tensor %.80q: unknown: want those of %s", raw.Name, ggufArchitectures(" and "))
		}
		t := backend.Tensor{Name: name, DType: raw.DType, Shape: raw.Shape, Data: raw.Data}
		if p.Restore != nil {
			if t, err = p.Restore(c.config, t); err != nil {
				return nil, fmt.Errorf("gguf tensor %.80q: %w", raw.Name, err)
			}
		}
		if err := t.Check(); err != nil {
			return nil, fmt.Errorf("gguf: %w", err)
		}
		if _, twice := c.tensors[name]; twice {
			return nil, fmt.Errorf("gguf tensor %.80q stands twice, under two names", raw.Name)
		}
		c.tensors[name] = t
		c.names = append(c.names, name)
	}
	return c, nil
}

// ggufFiles makes a model folder's small files from metadata.
type ggufFiles struct {
	gguf  *GGUF
	name  string
	unmap func() error
}

func (f *ggufFiles) read(name string) (data []byte, err error) {
	switch name {
	case ConfigFile:
		data, err = f.gguf.configJSON()
	case GenerationFile:
		data, err = json.Marshal(map[string]any{"eos_token_id": append([]int64{}, f.gguf.stopIDs()...)})
	case "tokenizer.json":
		data, err = f.gguf.tokenizerJSON()
	case "tokenizer_config.json":
		data, err = f.gguf.tokenizerConfigJSON()
	default:
		err = fmt.Errorf("no %s: %w", name, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	return data, nil
}

func (f *ggufFiles) weights(name string) ([]byte, error) { return f.read(name) }
func (f *ggufFiles) path(name string) string             { return f.name + ": " + name }
func (f *ggufFiles) close() error                        { return f.unmap() }
