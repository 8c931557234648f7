package architecture

import (
	"strconv"
	"strings"

	"windrow/backend"
)

// Parameter is a row of an architecture's table.
type Parameter struct {
	Role  Role
	Class Class
	// Name is the tensor's in Hugging Face files; of a layer, what follows
	// "model.layers.N.". A # stands for the number of an expert.
	Name string
	// GGUF is its name in GGUF files; of a layer, what follows "blk.N.". "":
	// they have it in no such tensor.
	GGUF  string
	Shape []Dim // [out, in] of a matrix
	Need  Need
	Split backend.Split
	Read  Read
	// Each is how many experts have such a tensor, each its own; nil: it is one
	// tensor.
	Each Dim
	// Restore makes the tensor that Hugging Face files have of the one in a GGUF
	// file, which is under its Hugging Face name already; nil: they are the same.
	Restore func(*Config, backend.Tensor) (backend.Tensor, error)
}

// Dim is a size that a config gives.
type Dim func(*Config) int

// Role is what a parameter is to the block that it belongs to. A bias has the
// role of the projection that it is added to, and a class of its own.
type Role string

// The roles of a dense transformer.
const (
	Embedding Role = "embedding"
	FinalNorm Role = "final norm"
	Head      Role = "head"

	AttentionNorm Role = "attention norm" // before attention
	Query         Role = "query"
	Key           Role = "key"
	Value         Role = "value"
	QueryNorm     Role = "query norm" // of each head, before rotation
	KeyNorm       Role = "key norm"
	Output        Role = "attention output"
	MLPNorm       Role = "mlp norm" // before the MLP
	Gate          Role = "gate"
	Up            Role = "up"
	Down          Role = "down"
)

// Class says what quantisation may do to a parameter.
type Class uint8

// The classes. Only matrices of the first three are ever quantised.
const (
	ClassProjection Class = iota + 1 // a matrix of a layer
	ClassEmbedding                   // its rows are looked up; a tied one is the head, too
	ClassHead
	ClassNorm
	ClassBias
	ClassOther // whatever else is small, or loses more than it saves
)

// Quantizable reports whether a policy may quantise parameters of the class.
func (c Class) Quantizable() bool { return c >= ClassProjection && c <= ClassHead }

// Need says whether a checkpoint may lack a parameter.
type Need uint8

// The needs. Where files have a parameter in one of several forms, each of them
// is Optional, and its block looks for one.
const (
	Required     Need = iota
	NeededUntied      // the head: a tied one is the embedding
	Usual             // may be absent; published models have it
	Optional          // may be there
)

// Invented reports whether random weights in a published shape have the
// parameter.
func (n Need) Invented(c *Config) bool {
	return n == Required || n == Usual || n == NeededUntied && !c.TieEmbeddings
}

// Read says how much of a parameter a forward reads: all of it, or the rows or
// experts that its tokens choose.
type Read uint8

// How much is read.
const (
	ReadAll Read = iota
	ReadSome
)

// tensor is the parameter of one layer and expert.
func (p *Parameter) tensor(c *Config, layer, expert int) Tensor {
	t := Tensor{Parameter: p, Name: p.Name, GGUF: p.GGUF, Layer: layer, Expert: expert}
	if expert >= 0 {
		t.Name = strings.Replace(t.Name, "#", strconv.Itoa(expert), 1)
	}
	if layer != Model {
		number := strconv.Itoa(layer) + "."
		t.Name = layerPrefix + number + t.Name
		if t.GGUF != "" {
			t.GGUF = ggufLayerPrefix + number + t.GGUF
		}
	}
	for _, d := range p.Shape {
		t.Shape = append(t.Shape, d(c))
	}
	return t
}

// match compares a tensor's name with a parameter's; expert is the number at
// its #, -1 where there is none.
func match(pattern, name string) (expert int, ok bool) {
	before, after, each := strings.Cut(pattern, "#")
	if !each {
		return -1, pattern == name
	}
	rest, ok := strings.CutPrefix(name, before)
	if !ok {
		return 0, false
	}
	if rest, ok = strings.CutSuffix(rest, after); !ok {
		return 0, false
	}
	return parseNumber(rest)
}

// ReadWhole reports whether a forward reads all of the parameter. A tied
// embedding is the head, too, and a head that is stored beside it is not read.
func (p *Parameter) ReadWhole(c *Config) bool {
	switch {
	case p.Role == Head:
		return !c.TieEmbeddings
	case p.Role == Embedding && c.TieEmbeddings:
		return true
	}
	return p.Read == ReadAll
}
