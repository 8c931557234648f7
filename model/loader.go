package model

import (
	"context"
	"fmt"
	"slices"

	"windrow/architecture"
	"windrow/backend"
	"windrow/checkpoint"
)

// loader fetches the tensors of an architecture's table, checks them against it,
// and keeps the first error.
type loader struct {
	ctx    context.Context
	b      backend.Backend // nil: tensors are checked and not taken (Check)
	src    checkpoint.Source
	config *checkpoint.Config
	table  *architecture.Architecture
	host   backend.HostExperts // takes the experts of layers before hosted; nil: nobody
	hosted int
	layer  int // whose tensors are asked for; architecture.Model: those of no layer
	err    error
}

func (l *loader) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

// block fetches the weights of a layer.
func (l *loader) block(layer int, b block) error {
	l.layer = layer
	b.load(l)
	l.layer = architecture.Model
	return l.err
}

// find is the tensor of a role: where the table has several forms of it, the
// first one that the source has.
func (l *loader) find(role architecture.Role, class architecture.Class) (t architecture.Tensor, there bool) {
	list := l.table.Role(l.config, l.layer, role, class)
	for _, t := range list {
		if _, ok := l.src.Tensor(t.Name); ok {
			return t, true
		}
	}
	if len(list) == 0 {
		l.fail(fmt.Errorf("the table of %s has no %s in layer %d", l.table.Name, role, l.layer))
		return t, false
	}
	return list[0], false
}

// has reports whether the source has a norm.
func (l *loader) has(norm architecture.Role) bool {
	_, there := l.find(norm, architecture.ClassNorm)
	return there
}

// needs reports whether the table demands a norm.
func (l *loader) needs(norm architecture.Role) bool {
	t, _ := l.find(norm, architecture.ClassNorm)
	return t.Parameter != nil && t.Need == architecture.Required
}

// tensor is that of a role, checked and with its split; false where it is absent
// or there is an error.
func (l *loader) tensor(role architecture.Role, class architecture.Class) (t backend.Tensor, ok bool) {
	if l.err != nil {
		return t, false
	}
	p, there := l.find(role, class)
	switch {
	case l.err != nil:
		return t, false
	case !there && p.Need == architecture.Required:
		l.fail(fmt.Errorf("tensor %s is missing", p.Name))
		return t, false
	case !there && p.Need == architecture.NeededUntied && !l.config.TieEmbeddings:
		l.fail(fmt.Errorf("tensor %s is missing and tie_word_embeddings is false", p.Name))
		return t, false
	case !there:
		return t, false
	}
	t, _ = l.src.Tensor(p.Name)
	if !slices.Equal(t.Shape, p.Shape) {
		l.fail(fmt.Errorf("tensor %s: shape %v, the config says %v", p.Name, t.Shape, p.Shape))
		return t, false
	}
	return p.Cut(l.config, t), true
}

// matrix is nil where the table allows that it is absent.
func (l *loader) matrix(role architecture.Role, class architecture.Class) backend.Matrix {
	t, ok := l.tensor(role, class)
	if !ok {
		return nil
	}
	return l.part(l.made(t))
}

// vector is nil where the table allows that it is absent.
func (l *loader) vector(role architecture.Role, class architecture.Class) backend.Vector {
	t, ok := l.tensor(role, class)
	if !ok {
		return nil
	}
	return l.vectorOf(t)
}

// flat is a vector of all elements of a tensor, row after row.
func (l *loader) flat(role architecture.Role, class architecture.Class) backend.Vector {
	t, ok := l.tensor(role, class)
	if !ok {
		return nil
	}
	each := t.Elements() / t.Shape[0]
	t.Shape, t.Sections = []int{t.Elements()}, slices.Clone(t.Sections)
	for i := range t.Sections {
		t.Sections[i] *= each
	}
	return l.vectorOf(t)
}

// vectorOf hands a vector to the backend.
func (l *loader) vectorOf(t backend.Tensor) backend.Vector {
	if t = l.made(t); l.err != nil {
		return nil
	}
	if l.b == nil {
		return l.describe(t)
	}
	v, err := l.b.Vector(t)
	if err != nil {
		l.fail(err)
		return nil
	}
	return v
}

// linear is a projection with its bias, where the source has one. The projection
// itself has to be there, in one of its forms.
func (l *loader) linear(role architecture.Role) backend.Linear {
	y := backend.Linear{Weight: l.matrix(role, architecture.ClassProjection)}
	if y.Weight == nil && l.err == nil {
		t, _ := l.find(role, architecture.ClassProjection)
		l.fail(fmt.Errorf("tensor %s is missing", t.Name))
	}
	if len(l.table.Role(l.config, l.layer, role, architecture.ClassBias)) > 0 {
		y.Bias = l.vector(role, architecture.ClassBias)
	}
	return y
}
