package model

import (
	"windrow/architecture"
	"windrow/backend"
)

// denseBlock is SwiGLU behind a norm.
type denseBlock struct {
	norm           backend.Vector
	gate, up, down backend.Linear
}

func (y *denseBlock) load(l *loader) {
	y.norm = l.vector(architecture.MLPNorm, architecture.ClassNorm)
	y.gate = l.linear(architecture.Gate)
	y.up = l.linear(architecture.Up)
	y.down = l.linear(architecture.Down)
}

func (y *denseBlock) list(p *backend.Program, s *stream, _ int) {
	mlp := s.buffer(p, "mlp", s.config.IntermediateSize)
	p.RMSNorm(s.normed, s.x, y.norm, s.config.RMSNormEps)
	p.GatedProject(mlp, s.normed, y.gate, y.up)
	p.ProjectAdd(s.x, mlp, y.down)
}
