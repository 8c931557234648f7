package architecture

import (
	"strconv"
	"strings"
)

// Architecture is a kind of model: its names, and the tables of its parameters
// in the order in which checkpoints store them.
type Architecture struct {
	Name  string // model_type of a config.json
	Class string // its class in a config.json
	GGUF  string // general.architecture of a GGUF file; "": there are none

	Input  []Parameter // before the layers: the embedding
	Layers []Part      // of each layer
	Output []Parameter // after the layers: the last norm and the head

	// Shared counts what several devices share in whole ones, in the order in
	// which a model that cannot be shared is refused.
	Shared []Count
}

// Part is what some of the layers have: attention, a dense MLP, experts.
type Part struct {
	Name string
	// In reports whether a layer, from 0 on, has the part; nil: each has.
	In         func(c *Config, layer int) bool
	Parameters []Parameter
}

// Count is a number of a config under the name that an error gives it.
type Count struct {
	Name string
	Of   Dim
}

// Model is the layer of what belongs to none.
const Model = -1

// The names of a layer's tensors begin with these and the layer's number.
const (
	layerPrefix     = "model.layers."
	ggufLayerPrefix = "blk."
)

// Tensor is a parameter of one model: of one layer, and of one expert where
// each has its own.
type Tensor struct {
	*Parameter
	Name   string // in Hugging Face files, whole
	GGUF   string // in GGUF files, whole; "": there is none
	Shape  []int  // [out, in] of a matrix, [n] of a vector, [experts, out, in] where experts are stacked
	Layer  int    // Model: of none
	Expert int    // -1: of none
}

// Tensors lists what a model of the config may have, optional parameters
// included, in the order of a checkpoint.
func (a *Architecture) Tensors(c *Config) (list []Tensor) {
	add := func(table []Parameter, layer int) {
		for i := range table {
			p := &table[i]
			if p.Each == nil {
				list = append(list, p.tensor(c, layer, -1))
				continue
			}
			for expert := range p.Each(c) {
				list = append(list, p.tensor(c, layer, expert))
			}
		}
	}
	add(a.Input, Model)
	for layer := range c.Layers {
		for _, part := range a.Layers {
			if part.in(c, layer) {
				add(part.Parameters, layer)
			}
		}
	}
	add(a.Output, Model)
	return list
}

// Find finds a tensor of a model of the config by its name in Hugging Face
// files; false for a name that no such model has.
func (a *Architecture) Find(c *Config, name string) (Tensor, bool) {
	layer, rest, ok := cutLayer(name, layerPrefix)
	if !ok {
		layer, rest = Model, name
	}
	for _, table := range a.tables(c, layer) {
		for i := range table {
			p := &table[i]
			expert, ok := match(p.Name, rest)
			if ok && (p.Each == nil || expert < p.Each(c)) {
				return p.tensor(c, layer, expert), true
			}
		}
	}
	return Tensor{}, false
}

// Role finds what a block asks for: the parameters of a layer, or of the model,
// with a role and a class. There are several where files have it in several
// forms, or for each expert.
func (a *Architecture) Role(c *Config, layer int, role Role, class Class) (list []Tensor) {
	for _, table := range a.tables(c, layer) {
		for i := range table {
			p := &table[i]
			if p.Role != role || p.Class != class {
				continue
			}
			if p.Each == nil {
				list = append(list, p.tensor(c, layer, -1))
				continue
			}
			for expert := range p.Each(c) {
				list = append(list, p.tensor(c, layer, expert))
			}
		}
	}
	return list
}

// FromGGUF finds the parameter of a name in GGUF files, and its name in Hugging
// Face files. It does not ask whether a model has that layer.
func (a *Architecture) FromGGUF(name string) (p *Parameter, huggingFace string, ok bool) {
	layer, rest, inLayer := cutLayer(name, ggufLayerPrefix)
	if !inLayer {
		rest = name
	}
	var tables [][]Parameter
	prefix := ""
	if inLayer {
		prefix = layerPrefix + strconv.Itoa(layer) + "."
		for _, part := range a.Layers {
			tables = append(tables, part.Parameters)
		}
	} else {
		tables = [][]Parameter{a.Input, a.Output}
	}
	for _, table := range tables {
		for i := range table {
			if p := &table[i]; p.GGUF != "" && p.GGUF == rest {
				return p, prefix + p.Name, true
			}
		}
	}
	return nil, "", false
}

// tables are those of a layer, or of the model.
func (a *Architecture) tables(c *Config, layer int) (tables [][]Parameter) {
	if layer == Model {
		return [][]Parameter{a.Input, a.Output}
	}
	if layer < 0 || layer >= c.Layers {
		return nil
	}
	for _, part := range a.Layers {
		if part.in(c, layer) {
			tables = append(tables, part.Parameters)
		}
	}
	return tables
}

func (p *Part) in(c *Config, layer int) bool { return p.In == nil || p.In(c, layer) }

// cutLayer parts a name such as "model.layers.7.mlp.up_proj.weight" after the
// layer's number.
func cutLayer(name, prefix string) (layer int, rest string, ok bool) {
	rest, ok = strings.CutPrefix(name, prefix)
	if !ok {
		return 0, "", false
	}
	number, rest, ok := strings.Cut(rest, ".")
	if !ok {
		return 0, "", false
	}
	layer, ok = parseNumber(number)
	return layer, rest, ok
}

// parseNumber reads a number as names have it: up to four digits, without zeros
// in front.
func parseNumber(s string) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	return int(n), err == nil && len(s) <= 4 && strconv.Itoa(int(n)) == s
}
