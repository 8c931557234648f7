package server

import (
	"context"
	"sync/atomic"
	"time"

	"windrow/checkpoint"
	"windrow/decoder"
	"windrow/grammar"
	"windrow/schedule"
	"windrow/tokenizer"
)

// Model is what a server answers with.
type Model struct {
	// Name is what clients call the model; Created is when it was opened.
	Name    string
	Created time.Time
	// Context is how many tokens prompt and answer have together, Vocabulary how many
	// ids there are.
	Context, Vocabulary int
	// Fingerprint names weights and arithmetic: an equal one, with an equal seed, gives
	// equal text.
	Fingerprint string
	// Backend, Arithmetic and Version are for /props.
	Backend, Arithmetic, Version string
	// BatchInvariant says that a row's bits do not depend on the rows beside it: a
	// request's text then depends on the request alone.
	BatchInvariant bool
	// Sequences is how many requests run at a time.
	Sequences int
	// WeightBytes is what the weights take, and PageBytes the keys and values of 64
	// tokens; 0: unknown.
	WeightBytes, PageBytes int64
	// Weights names the model's files: equal ones give equal prompts and weights.
	// Machine says where and in which arithmetic it was asked to run. With both equal,
	// and Version, another process would give the same text.
	Weights, Machine string
	// MaxTokens bounds an answer where the model is asked for its suggestion, which the
	// server itself does not do; Mode is that of requests that do not say.
	MaxTokens int
	Mode      decoder.Mode
	// Draft is who drafts where a request does not say ("": the model's default), and Drafts
	// the most that a step takes of its own head (0: as many as pay).
	Draft  decoder.DraftChoice
	Drafts int
	// NoThink switches thinking off where a request does not say.
	NoThink   bool
	Tokenizer *tokenizer.Tokenizer
	// Generation are the model's defaults of sampling; nil: none.
	Generation *checkpoint.GenerationConfig
	// Complete completes and checks options for a prompt of so many tokens, as
	// engine.Engine.Complete does. With adaptive set the window may follow what
	// forwards cost, where that does not change the text.
	Complete  func(o decoder.Options, promptTokens int, adaptive bool) (decoder.Options, error)
	Scheduler Scheduler
	// Constrain makes a constraint of a grammar, as engine.Engine.Constraint does; nil:
	// answers cannot be held to one.
	Constrain func(g *grammar.Grammar) (decoder.Constraint, error)
	// Sessions are those on disk; nil: none are kept.
	Sessions Sessions
	// Seal has a prompt computed while nobody waits, as schedule.Scheduler's does; nil:
	// nothing is.
	Seal func(r schedule.Request)

	forms     forms
	busySince atomic.Int64 // when a request came that found none, in Unix nanoseconds
}

// Scheduler runs requests. Its methods are called by many goroutines.
type Scheduler interface {
	// Submit queues a request, which ends with ctx. Errors: *schedule.FullError,
	// schedule.ErrDraining, schedule.ErrClosed, or what is wrong with the options.
	Submit(ctx context.Context, r schedule.Request) (Stream, error)
	// Drain takes no more requests, refuses those that wait, and waits for those that
	// run, as long as ctx lasts.
	Drain(ctx context.Context) error
	// State does not wait for a forward.
	State() schedule.State
	// Requests are those that run and wait; it does not wait for a forward.
	Requests() []schedule.RequestState
}

// Stream is what a request generates; see schedule.Stream.
type Stream interface {
	Next(ctx context.Context) ([]decoder.Event, error)
	Summary() decoder.Summary
	Timings() schedule.Timings
	Cancel()
}
