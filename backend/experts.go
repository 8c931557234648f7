package backend

import "fmt"

// Experts are the weights of a mixture of experts: SwiGLU for each, all of one shape.
type Experts struct {
	// Gate and Up have a matrix [inner, width] for each expert, Down one [width, inner].
	Gate, Up, Down []Matrix
	// Shared is an expert that every row has besides; nil: there is none. It is always
	// the backend's own.
	Shared *SharedExpert
	// Host is who took Gate, Up and Down, and runs them; nil: the backend itself.
	Host HostExperts
}

// HostExperts run mixtures of experts in the host's memory for the backend of a device: it
// hands them rows and takes back what they made. They are used as a Backend is, by one
// goroutine at a time.
type HostExperts interface {
	// Matrix takes a weight of an expert, shape [out, in], which stays where it lies and
	// must be there, unchanged, until Close.
	Matrix(t Tensor) (Matrix, error)
	// Mixture makes the experts of a layer ready, of which each row chose that many. Its
	// matrices are those that Matrix made; a shared expert is not run.
	Mixture(e *Experts, chosen int) (HostMixture, error)
	// Features describe the processor's arithmetic.
	Features() Features
	// Close frees what the experts hold.
	Close() error
}

// HostMixture is the experts of one layer.
type HostMixture interface {
	// Run sets each row of dst to what its experts make of its row of h, both [rows,
	// width], by routing, [rows, 2·chosen], as Route leaves it:
	//
	//	Σ weight · down(silu(gate·h) ⊙ (up·h))    experts ascending
	//
	// A row's bits depend on the row alone. It refuses experts that are not there.
	Run(dst, h, routing []float32) error
}

// ExpertsOnHost is a backend that may leave experts in the host's memory.
type ExpertsOnHost interface {
	// HostExperts takes the experts of the first layers, so many of them; nil and 0: of none.
	HostExperts() (h HostExperts, layers int)
}

// SharedExpert is the one that every row has.
type SharedExpert struct {
	Gate, Up, Down Matrix // of an inner width of its own
	// Weight, shape [1, width], says how much of it a row takes: sigmoid(x·wᵀ).
	Weight Matrix
}

// check compares the experts with rows of a width.
func (e *Experts) check(width int) error {
	n := len(e.Gate)
	if n == 0 || len(e.Up) != n || len(e.Down) != n {
		return fmt.Errorf("%d gates, %d ups and %d downs, want one of each for every expert", n, len(e.Up), len(e.Down))
	}
	inner := e.Gate[0].Out()
	for i := range n {
		if err := checkExpert(e.Gate[i], e.Up[i], e.Down[i], inner, width); err != nil {
			return fmt.Errorf("expert %d: %w", i, err)
		}
	}
	s := e.Shared
	if s == nil {
		return nil
	}
	if err := checkExpert(s.Gate, s.Up, s.Down, s.Gate.Out(), width); err != nil {
		return fmt.Errorf("shared expert: %w", err)
	}
	if s.Weight.Out() != 1 || s.Weight.In() != width {
		return fmt.Errorf("shared expert: its weight is [%d, %d], want [1, %d]", s.Weight.Out(), s.Weight.In(), width)
	}
	return nil
}

func checkExpert(gate, up, down Matrix, inner, width int) error {
	for _, m := range []Matrix{gate, up} {
		if m.Out() != inner || m.In() != width {
			return fmt.Errorf("a gate or up of [%d, %d], want [%d, %d]", m.Out(), m.In(), inner, width)
		}
	}
	if down.Out() != width || down.In() != inner {
		return fmt.Errorf("a down of [%d, %d], want [%d, %d]", down.Out(), down.In(), width, inner)
	}
	return nil
}

// Route chooses k experts for each row of h, by router, shape [experts, width]:
//
//	p = softmax(h·routerᵀ) over all experts, in f32, h not rounded
//	the k largest p, of equal ones the lower expert
//
// routing, of width 2k, then has their numbers in ascending order, and behind them
// their weights: p, or with renormalise p by the sum of the k.
func (p *Program) Route(routing, h Buffer, router Matrix, k int, renormalise bool) {
	w, n := p.width(h), p.width(routing)
	switch {
	case router.In() != w:
		p.fail("route: a router of width %d for rows of %d", router.In(), w)
	case k < 1 || k > router.Out():
		p.fail("route: %d of %d experts", k, router.Out())
	case n != 2*k:
		p.fail("route: width %d for %d experts, want %d", n, k, 2*k)
	case routing == h:
		p.fail("route: buffer %d is read and written", h)
	}
	p.add(Op{Kind: OpRoute, Dst: []Buffer{routing}, Src: []Buffer{h}, Weights: []Linear{{Weight: router}}, Chosen: k, Renormalise: renormalise})
}

// ExpertsAdd adds to each row of dst what its experts make of its row of h:
//
//	Σ weight · down(silu(gate·h) ⊙ (up·h))        by routing, experts ascending
//	+ sigmoid(w·h) · the shared expert's          where there is one
//
// A row's bits depend on the row alone, not on which others share its experts.
func (p *Program) ExpertsAdd(dst, h, routing Buffer, e *Experts) {
	d, s, n := p.width(dst), p.width(h), p.width(routing)
	if d != s {
		p.fail("experts: widths %d and %d", d, s)
	}
	if dst == h {
		p.fail("experts: buffer %d is read and written", h)
	}
	if n%2 != 0 || n/2 > len(e.Gate) {
		p.fail("experts: a routing of width %d to %d experts", n, len(e.Gate))
	}
	if err := e.check(s); err != nil {
		p.fail("experts: %w", err)
	}
	p.add(Op{Kind: OpExpertsAdd, Dst: []Buffer{dst}, Src: []Buffer{h, routing}, Chosen: n / 2, Experts: e})
}
