package model

import (
	"context"
	"fmt"
	"math"
	"slices"

	"windrow/backend"
)

// Forward runs one batch and returns a result for each wanted row, in the
// order of Want.Rows. The spans' caches are staged: Commit makes rows
// permanent; without it the next forward overwrites them.
//
// ctx is looked at before the device starts, between layers where they are listed
// one by one. A forward that fails or is cancelled leaves no trace.
func (m *Model) Forward(ctx context.Context, b *Batch) (results []Result, err error) {
	if err := m.check(b); err != nil {
		return nil, err
	}
	for _, s := range b.Spans {
		s.Cache.Stage(0)
	}
	c := m.config
	rows, half := len(b.Tokens), c.HeadDim/2
	if n := rows * half; cap(m.cos) < n {
		m.cos, m.sin = make([]float32, n), make([]float32, n)
	}
	cos, sin := m.cos[:rows*half], m.sin[:rows*half]
	m.rope.Fill(cos, sin, b.Positions)
	m.spans = m.spans[:0]
	for _, s := range b.Spans {
		m.spans = append(m.spans, backend.Span{KV: s.Cache.kv, Base: s.Cache.base, First: s.First, Rows: s.Rows})
	}

	if m.recording != nil && b.Hidden == nil && len(b.Want.Rows) > 0 {
		results, err = m.again(ctx, b, cos, sin)
	} else {
		results, err = m.list(ctx, b, cos, sin)
	}
	if err != nil {
		return nil, err
	}
	for _, s := range b.Spans {
		s.Cache.Stage(s.Rows)
	}
	return results, nil
}

// again runs the operations of an earlier forward. While the device works, the
// rotations of the positions that probably come next are made.
func (m *Model) again(ctx context.Context, b *Batch, cos, sin []float32) ([]Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := m.recording.Start(backend.Values{Tokens: b.Tokens, Cos: cos, Sin: sin, Spans: m.spans, Want: b.Want}); err != nil {
		return nil, err
	}
	for _, s := range b.Spans {
		last := slices.Max(b.Positions[s.First : s.First+s.Rows])
		m.rope.Ready(min(last+int32(min(s.Rows, 32)), int32(m.config.MaxPositions-1)))
	}
	return m.recording.Wait()
}

// list lists the operations of a forward, and runs them.
func (m *Model) list(ctx context.Context, b *Batch, cos, sin []float32) (results []Result, err error) {
	c := m.config
	p, err := m.backend.Begin(len(b.Tokens))
	if err != nil {
		return nil, err
	}
	ended := false
	defer func() {
		if !ended {
			p.End()
		}
	}()
	x, h := p.Buffer(c.HiddenSize), p.Buffer(c.HiddenSize)
	q, attn := p.Buffer(c.Heads*c.HeadDim), p.Buffer(c.Heads*c.HeadDim)
	k, v := p.Buffer(c.KVHeads*c.HeadDim), p.Buffer(c.KVHeads*c.HeadDim)
	mlp := p.Buffer(c.IntermediateSize)
	scale := float32(1 / math.Sqrt(float64(c.HeadDim)))

	p.Embed(x, m.embed, b.Tokens)
	m.showHidden(b, p, 0, x)
	for i := range m.layers {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		y := &m.layers[i]
		p.RMSNorm(h, x, y.inputNorm, c.RMSNormEps)
		p.Project([]backend.Buffer{q, k, v}, h, []backend.Linear{y.q, y.k, y.v})
		p.RotateStore(q, k, v, backend.Heads{QNorm: y.qNorm, KNorm: y.kNorm, Eps: c.RMSNormEps, Cos: cos, Sin: sin}, m.spans, i)
		p.Attend(attn, q, m.spans, i, scale)
		p.ProjectAdd(x, attn, y.o)
		p.RMSNorm(h, x, y.postNorm, c.RMSNormEps)
		p.GatedProject(mlp, h, y.gate, y.up)
		p.ProjectAdd(x, mlp, y.down)
		if i < len(m.layers)-1 {
			m.showHidden(b, p, i+1, x)
		}
	}
	if b.Hidden != nil {
		p.RMSNorm(h, x, m.norm, c.RMSNormEps)
		m.showHidden(b, p, len(m.layers), h)
	}
	if len(b.Want.Rows) > 0 {
		if results, err = p.Results(x, m.norm, c.RMSNormEps, m.head, b.Want); err != nil {
			return nil, err
		}
	}
	ended = true
	if k, ok := p.(backend.Keeper); ok && b.Hidden == nil && len(results) > 0 {
		m.recording, err = k.Keep()
	} else {
		err = p.End()
	}
	if err != nil {
		return nil, err
	}
	return results, nil
}

func (m *Model) showHidden(b *Batch, p backend.Pass, i int, x backend.Buffer) {
	if b.Hidden != nil {
		b.Hidden(i, p.Read(x))
	}
}

// check compares a batch with the model and its caches.
func (m *Model) check(b *Batch) error {
	rows := len(b.Tokens)
	if rows == 0 || len(b.Positions) != rows || len(b.Spans) == 0 {
		return fmt.Errorf("batch: %d tokens, %d positions, %d spans", rows, len(b.Positions), len(b.Spans))
	}
	for r, t := range b.Tokens {
		if t < 0 || int(t) >= m.config.VocabSize {
			return fmt.Errorf("batch: token %d in row %d, want 0 to %d", t, r, m.config.VocabSize-1)
		}
		if p := b.Positions[r]; p < 0 || int(p) >= m.config.MaxPositions {
			return fmt.Errorf("batch: position %d in row %d: the model's context is %d tokens", p, r, m.config.MaxPositions)
		}
	}
	next := 0
	for i, s := range b.Spans {
		if s.Cache == nil || s.Cache.kv == nil {
			return fmt.Errorf("batch: span %d has no open cache", i)
		}
		for _, earlier := range b.Spans[:i] {
			if earlier.Cache == s.Cache {
				return fmt.Errorf("batch: span %d shares its cache with another span", i)
			}
		}
		if s.First != next || s.Rows <= 0 {
			return fmt.Errorf("batch: span %d holds rows %d to %d, want it to start at %d", i, s.First, s.First+s.Rows-1, next)
		}
		if s.Rows > s.Cache.maxRows {
			return fmt.Errorf("batch: span %d has %d rows, its cache takes %d a forward", i, s.Rows, s.Cache.maxRows)
		}
		if s.Cache.base > s.Cache.capacity {
			return fmt.Errorf("batch: span %d: %d tokens in a cache of %d", i, s.Cache.base, s.Cache.capacity)
		}
		next += s.Rows
	}
	if next != rows {
		return fmt.Errorf("batch: spans cover %d of %d rows", next, rows)
	}
	for i, r := range b.Want.Rows {
		if r < 0 || int(r) >= rows || (i > 0 && r <= b.Want.Rows[i-1]) {
			return fmt.Errorf("batch: wanted row %d of %d; rows must ascend", r, rows)
		}
	}
	return nil
}
