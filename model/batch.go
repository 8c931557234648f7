package model

import "windrow/backend"

// Batch is one forward: packed rows of one or more sequences. Prefill, a
// single token, a window, and many windows of many requests are the same
// thing with different rows.
//
// Row r of a span sees every permanent key of its sequence and rows 0..r of
// its own span, in packed order; there is no other mask. After the forward
// the caller commits how many of each span's first rows become permanent.
type Batch struct {
	// Tokens and Positions have one entry a row. Positions are logical and
	// drive RoPE only.
	Tokens, Positions []int32
	// Spans partition the rows, in order.
	Spans []Span
	// Want says of which rows results are needed, ascending, and what of them; the
	// head runs on these only.
	Want []Wanted
	// Hidden, where set, is called with the hidden states [rows × hidden]:
	// index 0 after the embedding, i after layer i; the last after the final
	// norm. It costs a synchronisation a layer: for validation only.
	Hidden func(index int, states []float32)
	// Prepared is set by a forward that had to have something made for its sizes first: it
	// took longer than the next one of them will.
	Prepared bool

	deferred []func()
}

// Defer has the forward call f once, before anything looks into the sets of ids that Want
// allows: where a device does the work, while it does. f may fill these sets, or take them
// away.
func (b *Batch) Defer(f func()) { b.deferred = append(b.deferred, f) }

// RunDeferred calls what was deferred, once. Who takes a batch and does not hand it to
// Model.Forward calls it.
func (b *Batch) RunDeferred() {
	for _, f := range b.deferred {
		f()
	}
	b.deferred = b.deferred[:0]
}

// Span is the part of a batch that belongs to one sequence.
type Span struct {
	Cache       *Cache
	First, Rows int
	// Prompt says that the rows are of a prompt (backend.Features.PromptRows).
	Prompt bool
}

// The results' types are the backend's.
type (
	// Wanted is a row whose result is wanted, and what of it.
	Wanted = backend.Wanted
	// Result is what a forward says of one wanted row.
	Result = backend.Result
	// Candidate is a token id with its raw logit.
	Candidate = backend.Candidate
	// IDSet is a set of token ids.
	IDSet = backend.IDSet
	// Bars are the ids that may never be chosen.
	Bars = backend.Bars
	// NotFiniteError is a row of a forward whose logits are not finite.
	NotFiniteError = backend.NotFiniteError
)

// TopOf takes the k best candidates from a row of logits, as a forward finds them.
func TopOf(logits []float32, k int, bars Bars, allowed IDSet) []Candidate {
	return backend.TopOf(logits, k, bars, allowed)
}

// NewIDSet is an empty set with room for the ids below n.
func NewIDSet(n int) IDSet { return backend.NewIDSet(n) }
