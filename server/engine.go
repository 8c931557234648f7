package server

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"windrow/checkpoint"
	"windrow/decoder"
	"windrow/engine"
	"windrow/schedule"
)

// ForEngine is the model of an open engine, whose requests s runs. The engine needs a
// tokenizer. What forwards cost is measured at once where it is not known of this
// machine, in less than a second of the device, between the forwards of requests; until it
// is known windows are fixed, which changes no text.
func ForEngine(ctx context.Context, e *engine.Engine, s *schedule.Scheduler, version string) *Model {
	x := &engineModel{engine: e, scheduler: s}
	x.measure = sync.OnceFunc(func() { go x.learn(ctx) })
	// Where there are no masks somebody has to ask for drafts first.
	if e.Defaults(decoder.Options{}).Mode == decoder.Verified {
		x.measure()
	}
	m := &Model{
		Name: e.Name(), Created: time.Now(), Context: e.Config().MaxPositions, Vocabulary: e.Config().VocabSize,
		Fingerprint: fingerprint(e, version), Backend: e.BackendName(), Arithmetic: e.Arithmetic(), Version: version,
		Tokenizer: e.Tokenizer(), Complete: x.complete, Scheduler: scheduled{s}, Constrain: e.Constraint,
	}
	m.Seal = s.Seal
	if s.KeepsSessions() {
		m.Sessions = s
	}
	if c := e.Checkpoint(); c != nil {
		m.Generation, m.Weights = c.Generation(), c.Digest()
	}
	for _, name := range e.Source().Names() {
		if t, ok := e.Source().Tensor(name); ok {
			m.WeightBytes += int64(len(t.Data))
		}
	}
	d := e.Defaults(decoder.Options{})
	m.PageBytes, m.MaxTokens, m.Mode = e.KVPageBytes(), d.MaxTokens, d.Mode
	return m
}

// engineModel completes options, with a window that adapts once costs are known.
type engineModel struct {
	engine    *engine.Engine
	scheduler *schedule.Scheduler
	adaptive  atomic.Pointer[decoder.Options] // nil: not known yet
	measure   func()                          // begins to learn what forwards cost, once
}

func (x *engineModel) complete(o decoder.Options, promptTokens int, adaptive bool) (decoder.Options, error) {
	o, err := x.engine.Complete(o, promptTokens)
	if err != nil || !adaptive || o.Mode != decoder.Verified {
		return o, err
	}
	x.measure()
	if known := x.adaptive.Load(); known != nil {
		o.Cost, o.Window, o.Experience = known.Cost, known.Window, known.Experience
	}
	return o, err
}

// learn measures what forwards cost.
func (x *engineModel) learn(ctx context.Context) {
	if o := x.engine.Adaptive(ctx, decoder.Options{}); o.Cost != nil {
		x.adaptive.Store(&o)
	}
}

// scheduled makes a Scheduler of one of package schedule.
type scheduled struct{ *schedule.Scheduler }

// Submit implements Scheduler.
func (s scheduled) Submit(ctx context.Context, r schedule.Request) (Stream, error) {
	stream, err := s.Scheduler.Submit(ctx, r)
	if err != nil {
		return nil, err
	}
	return stream, nil
}

// SessionFingerprint names all that decides on the bits of keys and values besides the
// tokens: what fingerprint names, the kernels, and on a GPU the device.
func SessionFingerprint(e *engine.Engine, version string) string {
	f := e.Features()
	device := ""
	if f.Threads == 0 {
		device = f.Description
	}
	return fmt.Sprintf("%s %s %s exact %t, rows %d, %d, devices %d, %s", fingerprint(e, version), f.Kernels, f.Quantized, f.Exact,
		f.BatchInvariantRows, f.PrefillRows, f.Devices, device)
}

// fingerprint names the model by its digest, and what else may change a bit.
func fingerprint(e *engine.Engine, version string) string {
	var digest string
	if c, ok := e.Source().(*checkpoint.Checkpoint); ok {
		digest = c.Digest()
	} else {
		digest = checkpoint.DigestWeights(e.Source())
	}
	return fmt.Sprintf("fp_%x", sha256.Sum256(fmt.Appendln(nil, digest, e.Arithmetic(), version)))[:len("fp_")+16]
}
