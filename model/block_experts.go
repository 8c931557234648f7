package model

import (
	"fmt"
	"slices"

	"windrow/architecture"
	"windrow/backend"
	"windrow/quant"
)

// expertsBlock is a mixture of experts behind a norm.
type expertsBlock struct {
	norm    backend.Vector
	router  backend.Matrix
	experts backend.Experts
}

func (y *expertsBlock) load(l *loader) {
	y.norm = l.vector(architecture.MLPNorm, architecture.ClassNorm)
	y.router = l.router()
	if l.config.Experts.SharedInnerSize > 0 {
		y.experts.Shared = &backend.SharedExpert{
			Gate: l.linear(architecture.SharedGate).Weight, Up: l.linear(architecture.SharedUp).Weight,
			Down: l.linear(architecture.SharedDown).Weight, Weight: l.matrix(architecture.SharedWeight, architecture.ClassOther),
		}
	}
	if l.onHost() {
		y.experts.Host = l.host
	}
	if y.experts.Down = l.experts(architecture.ExpertDown); l.err != nil {
		return
	}
	if both := l.stacked(architecture.ExpertGateUp); both != nil {
		y.experts.Gate, y.experts.Up = l.halves(both)
		return
	}
	y.experts.Gate = l.experts(architecture.ExpertGate)
	y.experts.Up = l.experts(architecture.ExpertUp)
}

// router is the matrix that chooses experts. It is read here, as vectors are: of logits
// that are NaN each backend chooses some experts, and nothing behind shows it.
func (l *loader) router() backend.Matrix {
	t, ok := l.tensor(architecture.Router, architecture.ClassOther)
	if !ok {
		return nil
	}
	if t = l.made(t); l.err == nil {
		if err := quant.Finite(t); err != nil {
			l.fail(err)
		}
	}
	return l.part(t)
}

func (y *expertsBlock) list(p *backend.Program, s *stream, _ int) {
	e := s.config.Experts
	routing := s.buffer(p, "routing", 2*e.PerToken)
	p.RMSNorm(s.normed, s.x, y.norm, s.config.RMSNormEps)
	p.Route(routing, s.normed, y.router, e.PerToken, e.Renormalise)
	p.ExpertsAdd(s.x, s.normed, routing, &y.experts)
}

// experts are the matrices of a role, one for each expert: of tensors of their own, or
// parts of one that has all.
func (l *loader) experts(role architecture.Role) []backend.Matrix {
	if l.err != nil {
		return nil
	}
	if t := l.stacked(role); t != nil {
		list := make([]backend.Matrix, t.Shape[0])
		for i := range list {
			list[i] = l.expert(t.Part(i))
		}
		return list
	}
	var list []backend.Matrix
	for _, p := range l.table.Role(l.config, l.layer, role, architecture.ClassExpert) {
		if p.Expert < 0 {
			continue
		}
		t, there := l.src.Tensor(p.Name)
		switch {
		case !there:
			l.fail(fmt.Errorf("tensor %s is missing", p.Name))
		case !slices.Equal(t.Shape, p.Shape):
			l.fail(fmt.Errorf("tensor %s: shape %v, the config says %v", p.Name, t.Shape, p.Shape))
		}
		if l.err != nil {
			return nil
		}
		list = append(list, l.expert(l.made(p.Cut(l.config, t))))
	}
	return list
}

// stacked is a tensor that has the matrices of all experts; nil: the source has none.
func (l *loader) stacked(role architecture.Role) *backend.Tensor {
	for _, p := range l.table.Role(l.config, l.layer, role, architecture.ClassExpert) {
		t, there := l.src.Tensor(p.Name)
		if p.Expert >= 0 || !there {
			continue
		}
		if !slices.Equal(t.Shape, p.Shape) {
			l.fail(fmt.Errorf("tensor %s: shape %v, the config says %v", p.Name, t.Shape, p.Shape))
			return nil
		}
		t = l.made(p.Cut(l.config, t))
		if t.Make == nil {
			if err := t.Check(); err != nil {
				l.fail(err)
			}
		}
		if l.err != nil {
			return nil
		}
		return &t
	}
	return nil
}

// halves are gates and ups of a tensor that has both of each expert.
func (l *loader) halves(t *backend.Tensor) (gate, up []backend.Matrix) {
	for i := range t.Shape[0] {
		both := t.Part(i)
		both.Sections = nil // gate's rows and up's, apart
		n := both.Shape[0] / 2
		gate, up = append(gate, l.expert(both.Rows(0, n))), append(up, l.expert(both.Rows(n, 2*n)))
	}
	return gate, up
}

// made is a tensor with its bytes.
func (l *loader) made(t backend.Tensor) backend.Tensor {
	if t.Make == nil || l.err != nil || l.b == nil {
		return t
	}
	split, sections, heads := t.Split, t.Sections, t.Heads
	t, err := t.Make(l.ctx)
	if err != nil {
		l.fail(err)
	}
	t.Split, t.Sections, t.Heads = split, sections, heads
	return t
}

// onHost reports whether the experts of the layer stay in the host's memory. Those of a
// head for drafts, whose layers come behind the model's, do not.
func (l *loader) onHost() bool {
	return l.host != nil && l.layer < min(l.hosted, l.config.Layers)
}

// expert hands a matrix of an expert to who runs it.
func (l *loader) expert(t backend.Tensor) backend.Matrix {
	if !l.onHost() || l.err != nil {
		return l.part(t)
	}
	m, err := l.host.Matrix(t)
	if err != nil {
		l.fail(err)
	}
	return m
}

// part hands a matrix to the backend.
func (l *loader) part(t backend.Tensor) backend.Matrix {
	if l.err != nil {
		return nil
	}
	if l.b == nil {
		return l.describe(t)
	}
	m, err := l.b.Matrix(t)
	if err != nil {
		l.fail(err)
	}
	return m
}
