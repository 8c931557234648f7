package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/decoder"
	"windrow/grammar"
	"windrow/internal/unless"
	"windrow/model"
	"windrow/tokenizer"
)

// Engine is an open model on a device. See the package's comment for what may be
// called at the same time.
type Engine struct {
	name    string
	source  checkpoint.Source
	files   *checkpoint.Checkpoint // what the model was opened from; nil: a source
	tokens  *tokenizer.Tokenizer   // nil: opened without
	model   *model.Model
	device  *device
	shared  bool // the device is another engine's, which closes it
	options Options
	rowCost rowCost
	// experience is what windows learn of the model.
	experience *decoder.Experience
	drafter    *smallerModel // nil: none
	head       ownHead
	headless   atomic.Pointer[error] // why the model's own head is not used; nil: it is, or there is none
	reading    sync.WaitGroup        // of the files, in the background
	closing    sync.Once

	remembered remembered

	vocabularyOnce  sync.Once // makes what follows
	grammars        *grammar.Vocabulary
	vocabularyError error
}

// Open opens a model and its tokenizer: a folder in the Hugging Face layout, a
// GGUF file, or, for the path "", the embedded model.
//
// Where ctx ends first, so does Open, and what it has begun is freed.
//
// Errors: a *decoder.OptionError, a *MaskError, a *MemoryError where the device
// that was asked for is too small, or what is wrong with the files.
func Open(ctx context.Context, path string, o Options) (*Engine, error) {
	return o.open(ctx, func(ctx context.Context, o Options) (*Engine, error) {
		files, err := readCheckpoint(path)
		if err != nil {
			return nil, err
		}
		e := &Engine{name: ModelName(path), source: files, files: files, options: o, experience: decoder.NewExperience(), rowCost: rowCost{turn: newTurn()}, head: newOwnHead()}
		// A vocabulary of 150,000 tokens takes as long to read as half of a GPU's opening, and what
		// names the model (remember) a tenth of it.
		read := make(chan error, 1)
		e.reading.Go(func() {
			var err error
			e.tokens, err = tokenizer.Load(files)
			if read <- err; e.remembers() {
				files.Digest()
			}
		})
		return e, e.start(ctx, func() error { return <-read })
	})
}

// OpenSource opens weights under a name for people, with the options' tokenizer or
// without one: then it runs forwards of ids, and can neither encode nor show text. The
// source must stay open as long as the engine, and is not closed with it.
func OpenSource(ctx context.Context, name string, src checkpoint.Source, o Options) (*Engine, error) {
	return o.open(ctx, func(ctx context.Context, o Options) (*Engine, error) {
		e := &Engine{name: name, source: src, tokens: o.Tokenizer, options: o, experience: decoder.NewExperience(), rowCost: rowCost{turn: newTurn()}, head: newOwnHead()}
		return e, e.start(ctx, func() error { return nil })
	})
}

// open runs work, which opens an engine, until ctx ends.
func (o Options) open(ctx context.Context, work func(context.Context, Options) (*Engine, error)) (*Engine, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	o.KV = o.KVType()
	calls := &callbacks{note: o.Note, progress: o.Progress}
	o.Note, o.Progress = calls.sayNote, calls.sayProgress
	e, err := unless.Cancelled(ctx, func() (*Engine, error) { return work(ctx, o) }, (*Engine).Close)
	calls.end(err)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// start opens the device and, once the tokenizer is there, hands it the weights, which may
// have to be converted first. After an error the engine is closed.
func (e *Engine) start(ctx context.Context, tokens func() error) (err error) {
	defer func() {
		if err != nil {
			e.Close()
		}
	}()
	vocabulary, mask := e.source.Config().VocabSize, e.options.MaskID
	foreign := mask != nil && (*mask < 0 || int(*mask) >= vocabulary)
	if !foreign {
		e.device, err = openDevice(e.options, e.source)
	}
	if unread := tokens(); unread != nil {
		return unread
	}
	switch {
	case foreign:
		return &MaskError{e.name, *mask, vocabulary}
	case err == nil:
		e.model, err = e.load(ctx, e.source)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	if _, left := model.Unused(e.source); len(left) > 0 && e.options.Note != nil {
		e.options.Note(fmt.Sprintf("%s: %d tensors are not used: first %.80s", e.name, len(left), left[0]))
	}
	e.remember()
	return nil
}

// With loads other weights for the same tokenizer and device, as those of a
// quantised form. The engine that it returns must be done with before e is
// closed; its own Close frees nothing of e's.
func (e *Engine) With(ctx context.Context, src checkpoint.Source) (*Engine, error) {
	if err := e.device.take(ctx); err != nil {
		return nil, err
	}
	defer e.device.give()
	with := &Engine{name: e.name, source: src, files: e.files, tokens: e.tokens, device: e.device, shared: true, options: e.options, experience: decoder.NewExperience(), rowCost: rowCost{turn: newTurn()}, head: newOwnHead()}
	var err error
	if with.model, err = with.load(ctx, src); err != nil {
		return nil, err
	}
	return with, nil
}

// Close waits for the forward that runs, if one does, and frees the model, the
// device and the files, in this order: a backend may hold the files' bytes.
// Later calls get ErrClosed.
func (e *Engine) Close() {
	if e.shared {
		e.closing.Do(func() {
			if e.device.take(context.Background()) == nil {
				e.model.Close()
				e.device.give()
			}
		})
		return
	}
	e.closing.Do(func() {
		e.reading.Wait()
		// A measurement that runs keeps what it finds before all is over; none begins.
		if e.rowCost.take(context.Background()) == nil {
			e.rowCost.closed = true
			e.rowCost.give()
		}
		e.keep(0)
		if e.device != nil {
			e.device.close()
		}
		if e.files != nil {
			e.files.Close()
		}
	})
}

// Name is what the model is called.
func (e *Engine) Name() string { return e.name }

// Config is the model's configuration.
func (e *Engine) Config() *checkpoint.Config { return e.model.Config() }

// Source is where the weights come from.
func (e *Engine) Source() checkpoint.Source { return e.source }

// Checkpoint is the model's files; nil where it was opened from a source. It is
// closed with the engine.
func (e *Engine) Checkpoint() *checkpoint.Checkpoint { return e.files }

// Tokenizer is the model's tokenizer; nil where it was opened without.
func (e *Engine) Tokenizer() *tokenizer.Tokenizer { return e.tokens }

// BackendName is the backend's name: CPU, CUDA or Metal.
func (e *Engine) BackendName() string { return e.device.backend.Name() }

// Features are the backend's abilities and likings.
func (e *Engine) Features() backend.Features { return e.device.features }

// KV is the type of stored keys and values.
func (e *Engine) KV() backend.KVType { return e.options.KV }

// Arithmetic names what besides the model and the decoding options may change a
// token: backend, kernels, the type of keys and values.
func (e *Engine) Arithmetic() string {
	f := e.Features()
	s := fmt.Sprintf("%s %s, KV %s", e.BackendName(), f.Kernels, e.options.KV)
	if f.Exact {
		s += ", exact"
	}
	if e.options.NoThink {
		s += ", no thinking"
	}
	if e.options.KVWindow > 0 {
		s += fmt.Sprintf(", KV window %d keeping %d", e.options.KVWindow, e.options.KVKeep)
	}
	return s
}

// Bandwidth measures, for about that long, how fast the device reads (a CPU) or
// copies (a GPU) its memory, in GB/s: 10⁹ bytes read, or read and written.
func (e *Engine) Bandwidth(ctx context.Context, d time.Duration) (float64, error) {
	if err := e.device.take(ctx); err != nil {
		return 0, err
	}
	defer e.device.give()
	return e.device.bandwidth(d), nil
}

// HostExperts is where weights lie where experts stay in the host's memory; nil: none do.
func (e *Engine) HostExperts() *model.HostExperts { return e.device.hosted }

// HostBandwidth measures, for about that long, how fast the CPU reads the host's memory, in
// GB/s, where experts stay there; 0: none do.
func (e *Engine) HostBandwidth(ctx context.Context, d time.Duration) (float64, error) {
	if e.device.hostBandwidth == nil {
		return 0, nil
	}
	if err := e.device.take(ctx); err != nil {
		return 0, err
	}
	defer e.device.give()
	return e.device.hostBandwidth(d), nil
}

// Launches is how many kernels and copies the last step had on a GPU with graphs;
// 0 elsewhere.
func (e *Engine) Launches() int {
	if e.device.launches == nil || e.device.take(context.Background()) != nil {
		return 0
	}
	defer e.device.give()
	return e.device.launches()
}

// Validate compares the model's forward with golden tensors, as model.Validate
// does.
func (e *Engine) Validate(ctx context.Context, golden *checkpoint.Safetensors, perToken bool) ([]model.Deviation, error) {
	if err := e.device.take(ctx); err != nil {
		return nil, err
	}
	defer e.device.give()
	return e.model.Validate(ctx, golden, model.ValidateOptions{KV: e.options.KV, PerToken: perToken})
}
