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
	// Split is how several devices share it. Sections, where there are several, are
	// the runs of its outputs or inputs that are cut each by itself.
	Split    backend.Split
	Sections func(*Config) []int
	// Heads is of how many heads its outputs are where those are what attention keeps:
	// more devices than heads have copies. nil: it is cut without.
	Heads Dim
	Read  Read
	// Each is how many experts have such a tensor, each its own; nil: it is one
	// tensor.
	Each Dim
	// ZeroCentred norms are stored in Hugging Face files as what they are above 1.
	// GGUF and MLX files have them whole, and so has a model.
	ZeroCentred bool
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

	Router       Role = "router" // of a mixture of experts
	ExpertGate   Role = "gate of an expert"
	ExpertUp     Role = "up of an expert"
	ExpertDown   Role = "down of an expert"
	ExpertGateUp Role = "gate and up of an expert" // gate's rows, then up's

	SharedGate   Role = "gate of the shared expert"
	SharedUp     Role = "up of the shared expert"
	SharedDown   Role = "down of the shared expert"
	SharedWeight Role = "weight of the shared expert" // [1, hidden]: how much of it a row takes

	// Of a gated DeltaNet, whose heads DeltaNet describes. A file has DeltaQKVZ,
	// or DeltaQKV and DeltaZ; DeltaBA, or DeltaB and DeltaA. The vectors are in the
	// order of the value heads, the convolution's channels in that of DeltaQKV.
	DeltaQKVZ     Role = "query, key, value and z" // by key head: its q, its k, its heads of v, its heads of z
	DeltaQKV      Role = "query, key and value"    // q of all heads, k of all, v of all
	DeltaZ        Role = "z"                       // of all value heads
	DeltaBA       Role = "b and a"                 // by key head: b of its value heads, then a of them
	DeltaB        Role = "b"                       // of all value heads
	DeltaA        Role = "a"
	DeltaConv     Role = "convolution" // [channels, 1, rows]: the last one is the newest row's
	DeltaDecay    Role = "decay"       // A_log: a head forgets by exp(A_log) · softplus(a + time step)
	DeltaTimeStep Role = "time step"   // dt_bias
	DeltaNorm     Role = "delta norm"  // [value dim], of each value head
	DeltaOutput   Role = "delta output"

	// Of a head for drafts (multi-token prediction), beside a layer of its own.
	MTPProjection    Role = "draft projection" // [hidden, 2 · hidden]: the embedding's half first
	MTPEmbeddingNorm Role = "draft embedding norm"
	MTPHiddenNorm    Role = "draft hidden norm"
	MTPFinalNorm     Role = "draft final norm"
)

// Class says what quantisation may do to a parameter.
type Class uint8

// The classes. Only matrices of the first four are ever quantised.
const (
	ClassProjection Class = iota + 1 // a matrix of a layer
	ClassExpert                      // one of an expert
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
	ReadChosen // the experts that the router chooses
)

// tensor is the parameter of one layer and expert.
func (p *Parameter) tensor(c *Config, part *Part, layer, expert int) Tensor {
	t := Tensor{Parameter: p, Name: p.Name, GGUF: p.GGUF, Layer: layer, Expert: expert}
	if expert >= 0 {
		t.Name = strings.Replace(t.Name, "#", strconv.Itoa(expert), 1)
	}
	if layer != Model {
		t.Name = part.prefix(c, layer) + t.Name
		if t.GGUF != "" {
			t.GGUF = ggufLayerPrefix + strconv.Itoa(layer) + "." + t.GGUF
		}
	}
	for _, d := range p.Shape {
		t.Shape = append(t.Shape, d(c))
	}
	return t
}

// Cut is a tensor of the parameter with how devices share it.
func (p *Parameter) Cut(c *Config, t backend.Tensor) backend.Tensor {
	t.Split, t.Sections, t.Heads = p.Split, nil, 0
	if p.Sections != nil {
		t.Sections = p.Sections(c)
	}
	if p.Heads != nil {
		t.Heads = p.Heads(c)
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

// ReadBytes is how many of the bytes of a tensor a forward of one row reads: none of
// the rows that a token looks up, of experts those that are chosen, and none of the
// head for drafts, which has forwards of its own.
func (t Tensor) ReadBytes(c *Config, bytes int64) int64 {
	switch {
	case t.Layer >= c.Layers:
		return 0
	case t.Read == ReadChosen:
		return bytes * int64(c.Experts.PerToken) / int64(c.Experts.Count)
	case t.ReadWhole(c):
		return bytes
	}
	return 0
}
