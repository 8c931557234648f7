package model

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"windrow/architecture"
	"windrow/backend"
	"windrow/quant"
)

// A checkpoint may have a head for drafts (multi-token prediction, DeepSeek-V3's and
// Qwen3-Next's): one more layer of attention that reads the hidden state of a token and
// the token behind it, and says what comes behind that. Fed with its own hidden states it
// drafts on, each time less surely.
//
//	x = fc · [norm(embedding of token p+1); norm(hidden state of p)]
//	x = layer(x) at position p;   logits = head · norm(x): token p+2

// draftHead is the head for drafts of a model: what it does not share with that.
type draftHead struct {
	embedNorm, hiddenNorm, norm backend.Vector
	fc                          backend.Linear // [hidden, 2 · hidden]: the embedding's half first
	layer                       block
	rotation                    backend.Rotation
	bars                        backend.Bars

	wide    backend.Tensor // the model's head
	bits    int            // of the copy of it that drafts are made with; 0: none
	forward backend.Forward
	spans   []backend.Span
}

// ErrNoDraftHead is a model without a head for drafts, or loaded without it.
var ErrNoDraftHead = errors.New("the model has no head for drafts")

// DraftHead has the model's head for drafts loaded, too, where the checkpoint has one
// (Config.MTPLayers): its keys and values are kept beside the model's, in the same
// storage. bits, where it is 4, makes it multiply with a copy of the model's head in 4
// bits where that has 8 or more; the copy is made when it is first used.
func DraftHead(bits int) Option { return func(o *options) { o.drafts, o.draftBits = true, bits } }

// HeadMayFail has the model loaded without its head for drafts where that cannot be, as
// heads only propose: without is told why.
func HeadMayFail(without func(why error)) Option { return func(o *options) { o.without = without } }

// draftsOf fetches the head for drafts. The model's own head is loaded.
func (l *loader) draftsOf(bits int) *draftHead {
	c := l.config
	layer := c.Layers // behind the model's
	d := &draftHead{layer: newLayer(c, layer), bits: bits}
	if err := l.block(layer, d.layer); err != nil {
		return nil
	}
	l.layer = layer
	defer func() { l.layer = architecture.Model }()
	d.fc = l.linear(architecture.MTPProjection)
	d.embedNorm = l.vector(architecture.MTPEmbeddingNorm, architecture.ClassNorm)
	d.hiddenNorm = l.vector(architecture.MTPHiddenNorm, architecture.ClassNorm)
	d.norm = l.vector(architecture.MTPFinalNorm, architecture.ClassNorm)
	l.layer = architecture.Model
	role, class := architecture.Head, architecture.ClassHead
	if c.TieEmbeddings {
		role, class = architecture.Embedding, architecture.ClassEmbedding
	}
	d.wide, _ = l.tensor(role, class)
	return d
}

// list lists the operations of a forward of the head, with such a matrix.
func (d *draftHead) list(m *Model, head backend.Matrix) *backend.Program {
	c, p := m.config, new(backend.Program)
	s := &stream{config: c, rotation: d.rotation, x: p.Buffer(c.HiddenSize), normed: p.Buffer(c.HiddenSize), buffers: map[string]backend.Buffer{}}
	hidden, both := s.buffer(p, "hidden", c.HiddenSize), s.buffer(p, "both", 2*c.HiddenSize)
	p.Embed(s.x, m.embed)
	p.Input(hidden)
	p.RMSNorm(s.x, s.x, d.embedNorm, c.RMSNormEps)
	p.RMSNorm(hidden, hidden, d.hiddenNorm, c.RMSNormEps)
	p.Join(both, s.x, hidden)
	p.Project([]backend.Buffer{s.x}, both, []backend.Linear{d.fc})
	d.layer.list(p, s, c.Layers)
	p.Head(s.x, d.norm, c.RMSNormEps, head, d.bars)
	return p
}

// narrow makes the copy of the head, once, and has forwards multiply with it.
func (m *Model) narrow(ctx context.Context) error {
	d := m.drafts
	bits := d.bits
	d.bits = 0
	t := d.wide
	if bits != 4 || len(t.Shape) != 2 || t.BitsPerWeight() < 8 || t.Shape[1]%64 != 0 {
		return nil
	}
	if t.Make != nil {
		var err error
		if t, err = t.Make(ctx); err != nil {
			return err
		}
	}
	matrix, err := m.backend.Matrix(inFourBits(t))
	if err != nil {
		return nil // a device without room for a copy multiplies with the head itself
	}
	p := d.list(m, matrix)
	p.Beside(m.stores[:m.config.Layers])
	if b, ok := m.backend.(backend.Previewer); ok {
		b.Preview(p)
	}
	forward, err := m.backend.Compile(p)
	if err != nil {
		return err
	}
	d.forward.Close()
	d.forward, d.wide = forward, backend.Tensor{}
	return nil
}

// inFourBits is a matrix in affine groups of 64, made by all processors: half a second
// for 248,320 rows of 2,048.
func inFourBits(t backend.Tensor) backend.Tensor {
	const group, block = 64, 256
	out, in := t.Shape[0], t.Shape[1]
	y := backend.Tensor{Name: t.Name + " in 4 bits", DType: backend.Affine4, Shape: []int{out, in}, Group: group, Split: t.Split}.Allocated()
	data, scales := len(y.Data)/out, len(y.Scales)/out
	next := make(chan int)
	var wait sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			row := make([]float32, in)
			for first := range next {
				for r := first; r < min(first+block, out); r++ {
					quant.Row(row, &t, r)
					quant.Affine(y.Data[r*data:(r+1)*data], y.Scales[r*scales:(r+1)*scales], y.Biases[r*scales:(r+1)*scales], row, 4, group)
				}
			}
		})
	}
	for r := 0; r < out; r += block {
		next <- r
	}
	close(next)
	wait.Wait()
	return y
}

// Drafts reports whether the model was loaded with a head for drafts.
func (m *Model) Drafts() bool { return m.drafts != nil }

// DraftBatch is a forward of the head for drafts. Row r pairs the hidden state of a
// position with the token behind it.
type DraftBatch struct {
	// Tokens are those behind the rows' positions, and Hidden [rows × hidden size] the
	// states of the positions, after the final norm: results' of the model, or, where a
	// draft is drafted behind, of the head itself.
	Tokens []int32
	Hidden []float32
	// Spans partition the rows, in order.
	Spans []DraftSpan
	// Prepared is that of a Batch.
	Prepared bool
	// Want says of which rows results are needed, ascending, and what of them: row r says
	// what comes behind Tokens[r].
	Want []Wanted
}

// DraftSpan is the part of a batch that belongs to one sequence: positions At and those
// that follow. Rows see what the head keeps of the positions before.
type DraftSpan struct {
	Cache           *Cache
	At, First, Rows int
}

// Draft runs a forward of the head for drafts. What it keeps of a position is overwritten
// by the next forward over that; Cache.KeepDrafts says which of them are to stay. It is
// for proposals only: nothing of the model's own forwards depends on it.
func (m *Model) Draft(ctx context.Context, b *DraftBatch) ([]Result, error) {
	if m.drafts == nil {
		return nil, ErrNoDraftHead
	}
	if err := m.checkDraft(b); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if m.drafts.bits != 0 {
		if err := m.narrow(ctx); err != nil {
			return nil, err
		}
	}
	return m.draft(ctx, b)
}

// draft is Draft of a batch that fits, with the model's head as it is now.
func (m *Model) draft(ctx context.Context, b *DraftBatch) ([]Result, error) {
	d := m.drafts
	positions := make([]int32, 0, len(b.Tokens))
	d.spans = d.spans[:0]
	for _, s := range b.Spans {
		for i := range s.Rows {
			positions = append(positions, int32(s.At+i))
		}
		d.spans = append(d.spans, backend.Span{Storage: s.Cache.storage, Base: s.At, First: s.First, Rows: s.Rows})
	}
	v := backend.Values{Tokens: b.Tokens, Positions: positions, Spans: d.spans, Want: b.Want, Input: b.Hidden}
	if err := d.forward.Start(ctx, v); err != nil {
		return nil, err
	}
	b.Prepared = backend.Prepared(d.forward)
	return d.forward.Wait()
}

// checkDraft compares a batch with the model and its caches.
func (m *Model) checkDraft(b *DraftBatch) error {
	rows, width := len(b.Tokens), m.config.HiddenSize
	if rows == 0 || len(b.Spans) == 0 || len(b.Hidden) != rows*width {
		return fmt.Errorf("drafts: %d tokens, %d spans, %d numbers of hidden states of %d", rows, len(b.Spans), len(b.Hidden), width)
	}
	for r, t := range b.Tokens {
		if t < 0 || int(t) >= m.config.VocabSize {
			return fmt.Errorf("drafts: token %d in row %d, want 0 to %d", t, r, m.config.VocabSize-1)
		}
	}
	next := 0
	for i, s := range b.Spans {
		switch {
		case s.Cache == nil || s.Cache.storage == nil:
			return fmt.Errorf("drafts: span %d has no open cache", i)
		case s.First != next || s.Rows <= 0 || s.Rows > s.Cache.maxRows:
			return fmt.Errorf("drafts: span %d holds rows %d to %d, want it to start at %d and to have %d at most", i, s.First, s.First+s.Rows-1, next, s.Cache.maxRows)
		case s.At < 0 || s.At+s.Rows > m.config.MaxPositions || s.At+s.Rows > s.Cache.capacity+s.Cache.maxRows:
			return fmt.Errorf("drafts: span %d holds positions %d to %d: the cache has %d", i, s.At, s.At+s.Rows-1, s.Cache.capacity)
		}
		for _, earlier := range b.Spans[:i] {
			if earlier.Cache == s.Cache {
				return fmt.Errorf("drafts: span %d shares its cache with another span", i)
			}
		}
		next += s.Rows
	}
	if next != rows {
		return fmt.Errorf("drafts: spans cover %d of %d rows", next, rows)
	}
	return nil
}

// Drafted is for how many permanent tokens the head for drafts has what it keeps.
func (c *Cache) Drafted() int { return c.drafted }

// KeepDrafts says that what the head keeps of the first n permanent tokens is good: each
// of them was a row of a DraftBatch, with the token that follows it.
func (c *Cache) KeepDrafts(n int) error {
	if n < 0 || n > c.base {
		return fmt.Errorf("keep drafts of %d tokens: %d are permanent", n, c.base)
	}
	c.drafted = n
	return nil
}
