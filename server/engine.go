package server

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync/atomic"
	"time"

	"windrow/decoder"
	"windrow/engine"
	"windrow/schedule"
)

// idleTime is how long nothing may have run before c(rows) is measured, which takes
// less than a second of the device.
const idleTime = time.Second

// ForEngine is the model of an open engine, whose requests s runs. The engine needs a
// tokenizer. What forwards cost is measured once nobody asks for a second, until ctx
// ends: until it is known windows are fixed, which changes no text.
func ForEngine(ctx context.Context, e *engine.Engine, s *schedule.Scheduler, version string) *Model {
	x := &engineModel{engine: e, scheduler: s}
	go x.measure(ctx)
	m := &Model{
		Name: e.Name(), Created: time.Now(), Context: e.Config().MaxPositions, Vocabulary: e.Config().VocabSize,
		Fingerprint: fingerprint(e, version), Backend: e.BackendName(), Arithmetic: e.Arithmetic(), Version: version,
		Tokenizer: e.Tokenizer(), Complete: x.complete, Scheduler: scheduled{s}, Constrain: e.Constraint,
	}
	if c := e.Checkpoint(); c != nil {
		m.Generation = c.Generation()
	}
	return m
}

// engineModel completes options, with a window that adapts once costs are known.
type engineModel struct {
	engine    *engine.Engine
	scheduler *schedule.Scheduler
	adaptive  atomic.Pointer[decoder.Options] // nil: not known yet
}

func (x *engineModel) complete(o decoder.Options, promptTokens int, adaptive bool) (decoder.Options, error) {
	o, err := x.engine.Complete(o, promptTokens)
	if known := x.adaptive.Load(); err == nil && adaptive && o.Mode == decoder.Verified && known != nil {
		o.Cost, o.Window = known.Cost, known.Window
	}
	return o, err
}

// measure learns what forwards cost as soon as nobody waits for the device.
func (x *engineModel) measure(ctx context.Context) {
	if x.engine.Defaults(decoder.Options{}).Vocabulary.MaskID < 0 {
		return // there are no windows
	}
	tick := time.NewTicker(idleTime)
	defer tick.Stop()
	for before := int64(-1); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		st := x.scheduler.State()
		if st.Running+st.Waiting > 0 || st.Forwards != before {
			before = st.Forwards
			continue
		}
		if o := x.engine.Adaptive(ctx, decoder.Options{}); o.Cost != nil {
			x.adaptive.Store(&o)
		}
		return
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

// fingerprint names weights and arithmetic: names, shapes and types of all weights,
// the beginning and the end of each one's bytes, and what else may change a bit.
func fingerprint(e *engine.Engine, version string) string {
	const sample = 64
	h := sha256.New()
	src := e.Source()
	for _, name := range src.Names() {
		t, ok := src.Tensor(name)
		if !ok {
			continue
		}
		fmt.Fprintln(h, name, t.DType, t.Shape, t.Group, len(t.Data))
		h.Write(t.Data[:min(sample, len(t.Data))])
		h.Write(t.Data[max(0, len(t.Data)-sample):])
	}
	fmt.Fprintln(h, e.Arithmetic(), version)
	return fmt.Sprintf("fp_%x", h.Sum(nil)[:8])
}
