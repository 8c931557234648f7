package model

import (
	"context"

	"windrow/architecture"
	"windrow/backend"
	"windrow/checkpoint"
	"windrow/rope"
)

// Model is a Qwen-style transformer whose weights a backend has taken.
//
// A Model runs one forward at a time.
type Model struct {
	config  *checkpoint.Config
	backend backend.Backend

	embed  backend.Matrix // [vocabulary, hidden]
	blocks []block        // of each layer
	norm   backend.Vector
	head   backend.Matrix // [vocabulary, hidden]; the embedding's where tied
	drafts *draftHead     // nil: none, or not loaded

	forward backend.Forward
	stores  []backend.LayerStore // of each layer
	spans   []backend.Span       // of the current forward
}

// Load hands src's weights to a backend: the tensors that the table of its
// architecture names, in the shapes that follow from the config. Which are there
// decides on q/k norms and biases.
//
// The source must stay open for the model's life: a backend may keep its bytes.
func Load(b backend.Backend, src checkpoint.Source, o ...Option) (*Model, error) {
	return LoadContext(context.Background(), b, src, o...)
}

// Option is a choice made when a model is loaded.
type Option func(*options)

type options struct {
	bars      backend.Bars
	drafts    bool
	draftBits int
	without   func(error) // is told why a head for drafts is left out; nil: that is an error
}

// Barring bars ids from every Argmax and Top of the model: those from limit on (0: no
// limit), as a vocabulary has that is padded past the tokenizer's size, and except, the
// mask's (negative: none).
func Barring(limit, except int32) Option {
	return func(o *options) { o.bars = backend.Bars{Limit: limit, Except: max(except, -1)} }
}

// LoadContext is Load for weights whose checkpoint stores them in another form:
// they are converted one after the other, as long as ctx lasts.
func LoadContext(ctx context.Context, b backend.Backend, src checkpoint.Source, o ...Option) (*Model, error) {
	chosen := options{bars: backend.NoBars}
	for _, choose := range o {
		choose(&chosen)
	}
	c := src.Config()
	parameters, err := architecture.Lookup(c.Architecture)
	if err != nil {
		return nil, err
	}
	table, err := rope.New(c.Rope)
	if err != nil {
		return nil, err
	}
	if err := CheckDevices(src, b.Features().Devices); err != nil {
		return nil, err
	}
	rotation, err := b.Rotation(table, c.MaxPositions)
	if err != nil {
		return nil, err
	}
	m := &Model{config: c, backend: b, blocks: make([]block, c.Layers)}
	l := &loader{ctx: ctx, b: b, src: src, config: c, table: parameters, layer: architecture.Model}
	if h, ok := b.(backend.ExpertsOnHost); ok {
		l.host, l.hosted = h.HostExperts()
	}
	err = m.loadAll(l, chosen.bars, func(list func(*backend.Program, *stream)) { m.preview(rotation, list) })
	if err != nil {
		return nil, err
	}
	if chosen.drafts && c.MTPLayers > 0 && l.err == nil {
		m.drafts = l.draftsOf(chosen.draftBits)
		if l.err != nil && chosen.without != nil && ctx.Err() == nil {
			chosen.without(l.err)
			m.drafts, l.err = nil, nil
		}
	}
	if l.err != nil {
		return nil, l.err
	}
	if err := m.compile(rotation, chosen.bars); err != nil {
		return nil, err
	}
	return m, nil
}

// loadAll fetches all weights but a head for drafts. It tells of each part of the program whose
// weights are there: of the first layers, of all kinds, of the head, and of the embedding. Of
// these a backend learns what takes it long to prepare, so layers, which are small and have most
// of it, come first.
func (m *Model) loadAll(l *loader, bars backend.Bars, there func(list func(*backend.Program, *stream))) error {
	early := layersOfAllKinds(m.config, l.hosted)
	if err := m.loadLayers(l, 0, early); err != nil {
		return err
	}
	there(func(p *backend.Program, s *stream) {
		for i, y := range m.blocks[:early] {
			y.list(p, s, i)
		}
	})
	m.norm = l.vector(architecture.FinalNorm, architecture.ClassNorm)
	head := func(p *backend.Program, s *stream) { p.Head(s.x, m.norm, m.config.RMSNormEps, m.head, bars) }
	if !m.config.TieEmbeddings { // a checkpoint may carry the tied head as a tensor of its own, too
		if m.head = l.matrix(architecture.Head, architecture.ClassHead); l.err == nil {
			there(head)
		}
	}
	if m.embed = l.matrix(architecture.Embedding, architecture.ClassEmbedding); m.config.TieEmbeddings {
		m.head = m.embed
	}
	if l.err == nil {
		there(func(p *backend.Program, s *stream) {
			p.Embed(s.x, m.embed)
			if m.config.TieEmbeddings {
				head(p, s)
			}
		})
		l.err = checkUnused(l.src) // what is missing says more, of which the first layers tell
	}
	return m.loadLayers(l, early, m.config.Layers)
}

// Close frees what the model holds besides its weights, which are the backend's.
func (m *Model) Close() {
	m.forward.Close()
	if m.drafts != nil {
		m.drafts.forward.Close()
	}
}

// Config is the model's configuration.
func (m *Model) Config() *checkpoint.Config { return m.config }

// Backend is the backend that holds the weights.
func (m *Model) Backend() backend.Backend { return m.backend }

// KVBytesPerToken is what one token's keys and values take of the backend's memory, those
// of a head for drafts that was loaded among them: of several devices, on all of them.
func (m *Model) KVBytesPerToken(t backend.KVType) int64 {
	return backend.Layout{Layers: m.stores, DType: t}.BytesPerToken() * int64(m.KVCopies())
}

// KVCopies is on how many devices each KV head lies.
func (m *Model) KVCopies() int {
	return backend.HeadCopies(m.config.KVHeads, m.backend.Features().Devices)
}

// WeightBytes is how many bytes of weights a forward of one row reads: of several
// devices, all of them together.
func (m *Model) WeightBytes(src checkpoint.Source) int64 {
	if n := m.backend.Features().Devices; n > 1 {
		return int64(n) * ShareOf(src, n).ReadBytes
	}
	return checkpoint.ReadBytes(src)
}
