package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/edsrzf/mmap-go"

	"windrow/architecture"
	"windrow/backend"
)

// The file names of a Hugging Face model folder.
const (
	ConfigFile     = "config.json"
	GenerationFile = "generation_config.json"
	WeightsFile    = "model.safetensors"
	IndexFile      = "model.safetensors.index.json"
)

// maxSmallFile bounds the files that are read into memory: the largest
// published tokenizer.json has about 35 MB.
const maxSmallFile = 256 << 20

// smallFileLimits bounds those that are far smaller, several times the largest
// published ones.
var smallFileLimits = map[string]int64{
	ConfigFile: 16 << 20, GenerationFile: 1 << 20, IndexFile: 64 << 20,
	"tokenizer_config.json": 32 << 20, "chat_template.jinja": 4 << 20,
}

// Source gives a model's config and weights: a folder, the embedded model, or
// random weights of a shape.
type Source interface {
	Config() *Config
	// Tensor finds a weight by its name in the Hugging Face checkpoint.
	Tensor(name string) (backend.Tensor, bool)
	// Names lists the weights in the order in which they are stored.
	Names() []string
}

// Checkpoint is a Hugging Face model: config, weights and the small files
// around them. It may be read by several goroutines.
type Checkpoint struct {
	files      files
	config     *Config
	generation *GenerationConfig
	tensors    map[string]backend.Tensor
	names      []string
	others     map[string]bool // tensors that are no weights: position ids and the like
	packed     map[string]packedTensor
	parts      map[string]packedTensor // of weights that another method than MLX's quantised
	stored     []RawTensor             // these parts, in order
	mapped     []mmap.MMap             // the files that tensors lie in; none where they are in memory

	digesting sync.Once
	digest    string
}

// packedTensor is a tensor of quantised weights that waits for its scales.
type packedTensor struct {
	RawTensor
	file string
}

// files is where a checkpoint's files lie. Names are plain: checked by
// checkFileName before they come here.
type files interface {
	// read returns a small file; an error that is fs.ErrNotExist where it is
	// missing.
	read(name string) ([]byte, error)
	// weights returns a safetensors file without reading all of it.
	weights(name string) ([]byte, error)
	// path is how an error names a file.
	path(name string) string
	close() error
}

// New reads a model from memory: its files by name. Weights are not
// copied; the files must not change afterwards.
func New(byName map[string][]byte) (*Checkpoint, error) {
	return newCheckpoint(memory(byName))
}

func newCheckpoint(from files) (_ *Checkpoint, err error) {
	defer func() {
		if err != nil {
			from.close()
		}
	}()
	c := &Checkpoint{files: from, generation: &GenerationConfig{}, tensors: map[string]backend.Tensor{},
		others: map[string]bool{}, packed: map[string]packedTensor{}, parts: map[string]packedTensor{}}
	data, err := from.read(ConfigFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: no such file: want a Hugging Face model folder", from.path(ConfigFile))
	}
	if err != nil {
		return nil, err
	}
	if c.config, err = ParseConfig(data); err != nil {
		return nil, fmt.Errorf("%s: %w", from.path(ConfigFile), err)
	}
	data, err = from.read(GenerationFile)
	if err == nil {
		if c.generation, err = ParseGenerationConfig(data); err != nil {
			return nil, fmt.Errorf("%s: %w", from.path(GenerationFile), err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := c.loadWeights(); err != nil {
		return nil, err
	}
	if err := c.joinAffine(); err != nil {
		return nil, err
	}
	if err := c.joinPublished(); err != nil {
		return nil, err
	}
	if err := c.settleHybrid(); err != nil {
		return nil, err
	}
	return c, nil
}

// loadWeights opens model.safetensors or, where there is none, the shards of
// the index.
func (c *Checkpoint) loadWeights() error {
	data, err := c.files.weights(WeightsFile)
	if err == nil {
		return c.addShard(WeightsFile, data, nil)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	data, err = c.files.read(IndexFile)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: no such file, nor %s: want the weights as safetensors", c.files.path(WeightsFile), IndexFile)
	}
	if err != nil {
		return err
	}
	weightMap, err := ParseIndex(data)
	if err != nil {
		return fmt.Errorf("%s: %w", c.files.path(IndexFile), err)
	}
	shards := map[string][]string{}
	for name, shard := range weightMap {
		shards[shard] = append(shards[shard], name)
	}
	for _, shard := range slices.Sorted(maps.Keys(shards)) {
		data, err := c.files.weights(shard)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: no such file: %s puts %d tensors in it", c.files.path(shard), IndexFile, len(shards[shard]))
		}
		if err != nil {
			return err
		}
		if err := c.addShard(shard, data, weightMap); err != nil {
			return err
		}
		slices.Sort(shards[shard])
		for _, full := range shards[shard] {
			name, _ := plainName(c.config, full)
			if !c.has(name) && !c.others[name] {
				return fmt.Errorf("%s: no tensor %.80q, which %s puts there", c.files.path(shard), full, IndexFile)
			}
		}
	}
	return nil
}

// addShard takes the tensors of one safetensors file: all of them, or those
// that weightMap puts there.
func (c *Checkpoint) addShard(file string, data []byte, weightMap map[string]string) error {
	s, err := ReadSafetensors(data)
	if err != nil {
		return fmt.Errorf("%s: %w", c.files.path(file), err)
	}
	for _, raw := range s.Tensors {
		if weightMap != nil && weightMap[raw.Name] != file {
			continue
		}
		name, ours := plainName(c.config, raw.Name)
		if !ours {
			c.others[raw.Name] = true
			continue
		}
		if c.has(name) && architecture.Of(c.config).Wrapper != "" {
			return fmt.Errorf("%s: tensor %.80q stands twice, under two names", c.files.path(file), raw.Name)
		}
		if err := c.checkDrafts(name); err != nil {
			return fmt.Errorf("%s: %w", c.files.path(file), err)
		}
		raw.Name = name
		if raw.DType == "U32" && strings.HasSuffix(raw.Name, ".weight") {
			c.packed[raw.Name] = packedTensor{raw, file}
			c.names = append(c.names, raw.Name)
			continue
		}
		if c.takePart(raw, file) {
			continue
		}
		t, err := raw.Weight()
		if err != nil {
			if strings.HasSuffix(raw.Name, ".weight") || strings.HasSuffix(raw.Name, ".bias") {
				return fmt.Errorf("%s: %w", c.files.path(file), err)
			}
			c.others[raw.Name] = true
			continue
		}
		c.tensors[raw.Name] = t
		c.names = append(c.names, raw.Name)
	}
	return nil
}

// has reports whether a tensor, or a part of one, was taken under a name.
func (c *Checkpoint) has(name string) bool {
	_, ok := c.tensors[name]
	return ok || c.packed[name].file != "" || c.parts[name].file != ""
}

// Config is the model's config.json.
func (c *Checkpoint) Config() *Config { return c.config }

// Generation is the model's generation_config.json; an empty one where there
// is none.
func (c *Checkpoint) Generation() *GenerationConfig { return c.generation }

// Tensor finds a weight by name. Its data stays valid until Close.
func (c *Checkpoint) Tensor(name string) (backend.Tensor, bool) {
	t, ok := c.tensors[name]
	return t, ok
}

// Names lists the weights, shard after shard, in the order of their data.
func (c *Checkpoint) Names() []string { return slices.Clone(c.names) }

// ReadFile reads one of the model's small files, such as tokenizer.json, by
// its plain name. The error is fs.ErrNotExist where the model lacks it.
func (c *Checkpoint) ReadFile(name string) ([]byte, error) {
	if err := checkFileName(name); err != nil {
		return nil, err
	}
	return c.files.read(name)
}

// File is ReadFile for a file that may be absent: false stands for any error.
func (c *Checkpoint) File(name string) ([]byte, bool) {
	data, err := c.ReadFile(name)
	return data, err == nil
}

// Path is how an error names one of the model's files.
func (c *Checkpoint) Path(name string) string { return c.files.path(name) }

// Close unmaps the weights: no tensor of this checkpoint may be used after it.
func (c *Checkpoint) Close() error { return c.files.close() }

// memory holds files by name.
type memory map[string][]byte

func (m memory) read(name string) ([]byte, error) {
	data, ok := m[name]
	if !ok {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return data, nil
}

func (m memory) weights(name string) ([]byte, error) { return m.read(name) }
func (m memory) path(name string) string             { return name }
func (m memory) close() error                        { return nil }
