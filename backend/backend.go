// Package backend declares the operations that package model is written
// against, at the level a transformer thinks in: embed, norm, project, rotate
// and store, attend, row results. Packages cpu, cuda and metal implement them;
// conformance/backendtest is the suite that each one passes.
//
// A backend knows nothing of masks, windows or sampling: it sees packed rows.
// Every operation of one forward is enqueued on one Pass, and only Results
// and End wait for the device. A backend may keep a Pass's operations (Keeper):
// forwards that equal it but for their values are then run without listing them.
package backend

import "fmt"

// Backend is one device with one documented arithmetic order per operation.
//
// A Backend may be used by one goroutine at a time.
type Backend interface {
	// Name is the backend's name on the command line: "cpu", "cuda", "metal".
	Name() string
	// Features tells what this backend can do and would like.
	Features() Features
	// Matrix makes a projection or embedding weight, shape [out, in], usable
	// by this backend. Where the format allows it, t.Data is kept and not
	// copied: it must stay mapped and unchanged for the backend's life.
	Matrix(t Tensor) (Matrix, error)
	// Vector makes a norm weight or a bias, shape [n], usable by this backend.
	Vector(t Tensor) (Vector, error)
	// NewKV reserves key and value storage.
	NewKV(l KVLayout) (KV, error)
	// Begin starts the forward of that many packed rows.
	Begin(rows int) (Pass, error)
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

// Buffer holds activations, shape [rows of the pass, Width]. It lives until
// its pass ends.
type Buffer interface {
	Width() int
}

// Span says which rows of a pass belong to one sequence, and where its keys
// and values lie.
type Span struct {
	KV KV
	// Base is the index in KV of the span's first row: how many permanent
	// keys the sequence has.
	Base int
	// First and Rows are the span's place in the packed rows.
	First, Rows int
}

// Heads carries what rotation and storage of queries and keys need.
type Heads struct {
	QNorm, KNorm Vector // [head dim] RMSNorm weights; nil: no norm
	Eps          float32
	// Cos and Sin are [rows, head dim/2]: the rotation of each packed row's
	// logical position, scaling included (half-split pairing: i with i+dim/2).
	Cos, Sin []float32
}

// Pass is the submission of one forward. Errors are held back until End (and
// Results), so that a model reads as the list of its operations.
//
// Row r of a span sees indices 0..Base+r of its sequence's KV (all of them,
// or those that a rotating layout keeps), in packed order: there is no other
// mask. Row r's key and value are stored at index Base+r.
type Pass interface {
	// Buffer makes a buffer of rows × width; its contents are undefined.
	Buffer(width int) Buffer
	// Embed sets dst row r to row tokens[r] of table.
	Embed(dst Buffer, table Matrix, tokens []int32)
	// RMSNorm sets dst = x / sqrt(mean(x²) + eps) · weight, per row.
	RMSNorm(dst, x Buffer, weight Vector, eps float32)
	// Project sets dst[i] = x·w[i]ᵀ + bias for each i: projections that share
	// an input share one dispatch.
	Project(dst []Buffer, x Buffer, w []Linear)
	// ProjectAdd adds x·wᵀ + bias to dst: a projection into the residual.
	ProjectAdd(dst, x Buffer, w Linear)
	// GatedProject sets dst = silu(x·gateᵀ) ⊙ (x·upᵀ): SwiGLU's first half.
	GatedProject(dst, x Buffer, gate, up Linear)
	// RotateStore norms the heads of q and k (where weights are given), rotates
	// them, leaves q in place, and stores k and v in the spans' KV at layer.
	RotateStore(q, k, v Buffer, h Heads, spans []Span, layer int)
	// Attend sets dst to causal attention of q's heads over the spans' KV at
	// layer. Query head h uses key head h / (query heads / key heads).
	Attend(dst, q Buffer, spans []Span, layer int, scale float32)
	// Read waits and returns a copy of a buffer, [rows × width] in f32.
	Read(b Buffer) []float32
	// Results applies the final norm and the head to the wanted rows, and
	// returns one Result per wanted row, in that order.
	Results(x Buffer, norm Vector, eps float32, head Matrix, w Want) ([]Result, error)
	// End waits for everything enqueued, frees the buffers, and reports the
	// first error of the pass. It must be called once, also after an error.
	End() error
}

// Keeper is a Pass whose operations can be run again. A decode step differs from
// the one before in little but its values; listing its operations anew costs a model
// of 36 layers some 20 µs.
type Keeper interface {
	Pass
	// Keep ends the pass as End does, and keeps what it enqueued: all from Embed to
	// Results. It returns nil where that cannot be run again as a whole, as after a Read.
	Keep() (Recording, error)
}

// Recording is the operations of one forward, for forwards of other values and any
// number of rows. It lives until its backend is closed; one forward runs at a time.
type Recording interface {
	// Start begins a forward with values v and returns while the device works. Then
	// v's slices may be changed, but for Want's. After an error nothing has begun.
	Start(v Values) error
	// Wait waits for the forward that Start began and returns what Results would:
	// nothing else may be asked of the backend in between.
	Wait() ([]Result, error)
}

// Values are what forwards of the same operations may differ in.
type Values struct {
	Tokens   []int32   // of Embed, one a row
	Cos, Sin []float32 // of Heads
	Spans    []Span    // of storage with the layers and heads that the operations had before
	Want     Want      // of at least one row
}

// Want says of which rows results are wanted, and what of them.
type Want struct {
	// Rows are packed row numbers, ascending.
	Rows []int32
	// TopK is how many (id, logit) pairs Result.Top holds, best first.
	TopK int
	// Logits asks for each row's raw logits over the whole vocabulary.
	Logits bool
	// Limit and Except bar ids from Argmax and Top, not from the entropy, the
	// log-sum-exp or Logits: ids ≥ Limit (0: no limit), and id Except (negative: none).
	// They bar the mask id and the ids past the tokenizer's size.
	Limit, Except int32
}

// Check compares the wanted rows with a pass of rows rows, and returns the
// limit of ids in a vocabulary of that size: at least one id must be left.
func (w *Want) Check(rows, vocabulary int) (limit int, err error) {
	limit = int(w.Limit)
	if limit <= 0 || limit > vocabulary {
		limit = vocabulary
	}
	if limit == 1 && w.Except == 0 {
		return 0, fmt.Errorf("results: no id may be chosen")
	}
	for _, r := range w.Rows {
		if r < 0 || int(r) >= rows {
			return 0, fmt.Errorf("results: row %d of %d", r, rows)
		}
	}
	return limit, nil
}

// Result is what a forward tells of one wanted row.
type Result struct {
	// Argmax is the id of the largest logit that Want does not bar; the lowest
	// such id on a tie.
	Argmax int32
	// Entropy is in nats, of the raw logits at temperature 1 over the whole
	// vocabulary. LogSumExp is of the same logits.
	Entropy, LogSumExp float32
	// Top holds the largest logits that Want does not bar, best first, lower id
	// first on a tie.
	Top []Candidate
	// Logits holds the raw logits, [vocabulary], or nil.
	Logits []float32
}

// Candidate is a token id with its raw logit.
type Candidate struct {
	ID    int32
	Logit float32
}
