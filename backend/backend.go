// Package backend declares the operations that package model is written
// against, at the level a transformer thinks in: embed, norm, project, rotate
// and store, attend, head. Packages cpu, cuda and metal implement them;
// conformance/backendtest is the suite that each one passes.
//
// A backend knows nothing of masks, windows or sampling: it sees packed rows.
// A model lists the operations of its forward once, as a [Program], whose shapes
// are checked here for all backends; a backend compiles it, and each forward
// brings only its [Values].
package backend

// Backend is one device with one documented arithmetic order per operation.
//
// A Backend may be used by one goroutine at a time.
type Backend interface {
	// Name is the backend's name on the command line: "cpu", "cuda", "metal".
	Name() string
	// Features says what this backend can do and would like.
	Features() Features
	// Matrix makes a projection or embedding weight, shape [out, in], usable
	// by this backend. Where the format allows it, t.Data is kept and not
	// copied: it must stay mapped and unchanged for the backend's life.
	Matrix(t Tensor) (Matrix, error)
	// Vector makes a norm weight or a bias, shape [n], usable by this backend.
	Vector(t Tensor) (Vector, error)
	// Rotation makes the angles of positions 0 to positions-1 usable by this
	// backend. a is asked for them when they are needed.
	Rotation(a Angles, positions int) (Rotation, error)
	// NewStorage makes storage for one sequence; it takes no memory for tokens yet. It
	// returns an *UnsupportedError for a kind of store that the backend lacks.
	NewStorage(l Layout) (Storage, error)
	// Budget is what all of the backend's storage is taken from.
	Budget() *Budget
	// Compile makes a program ready to run. It returns an *UnsupportedError, of one
	// line, for an operation that the backend lacks.
	Compile(p *Program) (Forward, error)
	// Close frees what the backend holds.
	Close() error
}

// Features are the optional abilities and the likings of a backend.
type Features struct {
	// Description is one line for people: device, instruction set, threads.
	Description string
	// Kernels names the arithmetic that bf16 weights run in, such as
	// "amx-bf16", "avx512-bf16", "avx512-f32", "avx2-f32", "neon-f32", "go".
	Kernels string
	// Quantized names the arithmetic that quantised weights run in, such as
	// "amx-int8", "avx512-vnni", "avx2-int8", "neon-i8mm"; empty where they are
	// widened for that of Kernels.
	Quantized string
	// Exact is true where activations stay in f32 in every operation.
	Exact bool
	// KVF16 is true where keys and values may be stored in f16.
	KVF16 bool
	// Threads is the number of CPU threads at work (0 on a device).
	Threads int
	// PrefillRows is how many rows of a prompt one forward should carry.
	PrefillRows int
	// BatchInvariantRows is the largest row count for which a row's result is
	// bit-identical whatever other rows ride along.
	BatchInvariantRows int
	// PromptRows is the largest row count of a forward of prompts alone
	// (Values.Prompts) for which a row's result, and what is stored of it, is
	// bit-identical however the prompt is cut and whatever other prompts ride along. It
	// may differ from what the row has as one of a step. 0: a row's bits depend on how
	// its prompt is cut, beyond BatchInvariantRows.
	PromptRows int
	// HiddenRows is true where results may bring rows' hidden states (Wanted.Hidden).
	HiddenRows bool
	// Devices is over how many devices tensors with a Split are cut (0: one).
	Devices int
}

// Linear is a weight [out, in] with an optional bias [out].
type Linear struct {
	Weight Matrix
	Bias   Vector // nil: none
}

// Matrix is a weight of shape [Out, In] that a backend has taken.
type Matrix interface {
	Out() int
	In() int
}

// Vector is a weight of one dimension that a backend has taken.
type Vector interface {
	Len() int
}

// Rotation is a table of angles that a backend has taken.
type Rotation interface {
	// Pairs is how many pairs of a head's elements it rotates: i with i+Pairs.
	Pairs() int
	// Positions is how many positions there are.
	Positions() int
}

// Angles are where a backend has the cosines and sines of positions from;
// [windrow/rope.Table] is one.
type Angles interface {
	Pairs() int
	// Fill sets row r of cos and sin, each [len(positions), Pairs], to those of
	// positions[r], scaling included.
	Fill(cos, sin []float32, positions []int32)
}

// Span says which rows of a forward belong to one sequence, and what it keeps.
type Span struct {
	Storage Storage
	// Base is the index of the span's first row: how many permanent tokens the
	// sequence has.
	Base int
	// First and Rows are the span's place in the packed rows.
	First, Rows int
}

// Result is what a forward says of one wanted row.
type Result struct {
	// Argmax is the id of the largest logit that may be chosen; the lowest such
	// id on a tie.
	Argmax int32
	// Entropy is in nats, of the raw logits at temperature 1 over the whole
	// vocabulary. LogSumExp is of the same logits.
	Entropy, LogSumExp float32
	// Top holds the largest logits of ids that may be chosen, best first, lower id
	// first on a tie.
	Top []Candidate
	// Logits holds the raw logits, [vocabulary], or nil.
	Logits []float32
	// Hidden holds the state behind the final norm, [width], or nil.
	Hidden []float32
}

// Candidate is a token id with its raw logit.
type Candidate struct {
	ID    int32
	Logit float32
}
