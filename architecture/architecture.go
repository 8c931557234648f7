package architecture

import (
	"slices"
	"strconv"
	"strings"
)

// Architecture is a kind of model: its names, and the tables of its parameters
// in the order in which checkpoints store them.
type Architecture struct {
	Name  string // model_type of a config.json
	Class string // its class in a config.json
	GGUF  string // general.architecture of a GGUF file; "": there are none
	// TiledInGGUF says that GGUF files have DeltaNet.Tiled's order of value heads.
	TiledInGGUF bool

	// Wrapper and WrapperClass are the names of a model that sees images, too,
	// where this one is its text_config; its images are ignored. "": there is none.
	Wrapper, WrapperClass string
	Defaults              Defaults

	Input  []Parameter // before the layers: the embedding
	Layers []Part      // of each layer
	Output []Parameter // after the layers: the last norm and the head

	// Shared counts what several devices share in whole ones, in the order in
	// which a model that cannot be shared is refused.
	Shared []Count
}

// Defaults are what a config.json means that does not say so.
type Defaults struct {
	HeadDim  int     // 0: HiddenSize / Heads
	Rotated  float64 // how much of a head rotates; 0: all of it, whatever a config says
	Experts  Experts // of a mixture: Step and DenseLayers are not in it
	EachHas  bool    // each layer has experts, renormalised: there are no fields for other ones
	Untied   bool    // the head is a tensor where there is one, whatever the config says
	Interval int     // of layers that have attention; 0: all have it
}

// Part is what some of the layers have: attention, a dense MLP, experts.
type Part struct {
	Name string
	// Prefix, where set, is what the names of its tensors begin with in Hugging
	// Face files, in place of the layer's.
	Prefix string
	// In reports whether a layer, from 0 on, has the part; nil: each has.
	In         func(c *Config, layer int) bool
	Parameters []Parameter
}

// Count is a number of a config under the name that an error gives it.
type Count struct {
	Name string
	Of   Dim
	// Copied: more devices than there are, a multiple of them, share it, too.
	Copied bool
}

// Model is the layer of what belongs to none.
const Model = -1

// The names of a layer's tensors begin with these and the layer's number; those of
// a head for drafts with a number of their own, from 0 on.
const (
	layerPrefix     = "model.layers."
	mtpPrefix       = "mtp."
	mtpLayerPrefix  = "mtp.layers."
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
	list = (&Part{Parameters: a.Input}).tensors(list, c, Model)
	for layer := range c.Layers + c.MTPLayers {
		for i := range a.Layers {
			if a.Layers[i].in(c, layer) {
				list = a.Layers[i].tensors(list, c, layer)
			}
		}
	}
	return (&Part{Parameters: a.Output}).tensors(list, c, Model)
}

// tensors appends those of a layer that keep has nothing against.
func (p *Part) tensors(list []Tensor, c *Config, layer int, keep ...func(*Parameter) bool) []Tensor {
	for i := range p.Parameters {
		row := &p.Parameters[i]
		if len(keep) > 0 && !keep[0](row) {
			continue
		}
		if row.Each == nil {
			list = append(list, row.tensor(c, p, layer, -1))
			continue
		}
		for expert := range row.Each(c) {
			list = append(list, row.tensor(c, p, layer, expert))
		}
	}
	return list
}

// Find finds a tensor of a model of the config by its name in Hugging Face
// files; false for a name that no such model has.
func (a *Architecture) Find(c *Config, name string) (Tensor, bool) {
	layer := Model
	if n, _, ok := cutLayer(name, layerPrefix); ok && n < c.Layers {
		layer = n
	} else if n, _, ok := cutLayer(name, mtpLayerPrefix); ok {
		layer = c.Layers + n
	} else if strings.HasPrefix(name, mtpPrefix) {
		layer = c.Layers
	}
	for _, part := range a.parts(c, layer) {
		prefix := ""
		if layer != Model {
			prefix = part.prefix(c, layer)
		}
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		for i := range part.Parameters {
			p := &part.Parameters[i]
			expert, ok := match(p.Name, rest)
			if ok && (p.Each == nil || expert < p.Each(c)) {
				return p.tensor(c, part, layer, expert), true
			}
		}
	}
	return Tensor{}, false
}

// Role finds what a block asks for: the parameters of a layer, or of the model,
// with a role and a class. There are several where files have it in several
// forms, or for each expert.
func (a *Architecture) Role(c *Config, layer int, role Role, class Class) (list []Tensor) {
	for _, part := range a.parts(c, layer) {
		list = part.tensors(list, c, layer, func(p *Parameter) bool { return p.Role == role && p.Class == class })
	}
	return list
}

// FromGGUF finds the parameter of a name in GGUF files, and its name in Hugging
// Face files. It does not ask whether a model has that layer, but for those of a
// head for drafts.
func (a *Architecture) FromGGUF(c *Config, name string) (p *Parameter, huggingFace string, ok bool) {
	layer, rest, inLayer := cutLayer(name, ggufLayerPrefix)
	if !inLayer {
		layer, rest = Model, name
	}
	for _, part := range a.ggufParts(c, layer) {
		for i := range part.Parameters {
			if p := &part.Parameters[i]; p.GGUF != "" && p.GGUF == rest {
				if layer == Model {
					return p, p.Name, true
				}
				return p, part.prefix(c, layer) + p.Name, true
			}
		}
	}
	return nil, "", false
}

// ggufParts are those that a block of a GGUF file may be of.
func (a *Architecture) ggufParts(c *Config, layer int) (parts []*Part) {
	if layer == Model || layer >= c.Layers && layer < c.Layers+c.MTPLayers {
		return a.parts(c, layer)
	}
	for i := range a.Layers {
		if a.Layers[i].Prefix == "" {
			parts = append(parts, &a.Layers[i])
		}
	}
	return parts
}

// parts are those of a layer, or of the model.
func (a *Architecture) parts(c *Config, layer int) (parts []*Part) {
	if layer == Model {
		return []*Part{{Parameters: a.Input}, {Parameters: a.Output}}
	}
	if layer < 0 || layer >= c.Layers+c.MTPLayers {
		return nil
	}
	for i := range a.Layers {
		if a.Layers[i].in(c, layer) {
			parts = append(parts, &a.Layers[i])
		}
	}
	return parts
}

// prefix is what the names of the part's tensors in a layer begin with.
func (p *Part) prefix(c *Config, layer int) string {
	switch {
	case p.Prefix != "":
		return p.Prefix
	case layer >= c.Layers && layer < c.Layers+c.MTPLayers:
		return mtpLayerPrefix + strconv.Itoa(layer-c.Layers) + "."
	}
	return layerPrefix + strconv.Itoa(layer) + "."
}

func (p *Part) in(c *Config, layer int) bool { return p.In == nil || p.In(c, layer) }

// Mixture reports whether some layers may have experts.
func (a *Architecture) Mixture() bool {
	return slices.ContainsFunc(a.Layers, func(p Part) bool { return p.Name == "experts" })
}

// Hybrid reports whether some layers may be gated DeltaNets.
func (a *Architecture) Hybrid() bool {
	return slices.ContainsFunc(a.Layers, func(p Part) bool { return p.Name == "delta" })
}

// Has reports whether some layers may have a parameter of a role.
func (a *Architecture) Has(role Role) bool {
	return slices.ContainsFunc(a.Layers, func(p Part) bool {
		return slices.ContainsFunc(p.Parameters, func(row Parameter) bool { return row.Role == role })
	})
}

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
