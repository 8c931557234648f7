package backend

// Strided is where a part of each key head lies in the rows of a buffer: that of key
// head g begins at First + g·Stride. Of value heads, ValueHeads / KeyHeads of them in
// their order are a part.
type Strided struct {
	Buffer        Buffer
	First, Stride int
}

// Delta is the operands of the operation of that name.
type Delta struct {
	StateShape
	// Q and K have KeyDim elements a part; V and Z ValueDim elements for each of its value
	// heads, one head after the other; B and A one element for each of them. They are raw
	// projections.
	Q, K, V, Z, B, A Strided
	// Taps, [Channels·Conv], are the weights of the convolution, channel after channel in
	// the order all queries, all keys, all values; of a channel the oldest row's is first.
	Taps Vector
	// LogDecay and TimeStep have an element a value head: A_log and dt_bias.
	LogDecay, TimeStep Vector
	// Norm is that of the output, [ValueDim].
	Norm Vector
	Eps  float32
}

// DeltaEps is added to the sum of squares of a query or a key before its root divides it.
const DeltaEps = 1e-6

// Delta sets dst, [Values], to gated DeltaNet of the rows of each span, over the state
// that its storage has at layer (arXiv 2412.06464). With c = silu(convolution of the last
// Conv rows), of a row:
//
//	q̂ = q / √(Σq² + DeltaEps) / √KeyDim        k̂ = k / √(Σk² + DeltaEps)
//	α = exp(-exp(LogDecay)·softplus(a + TimeStep))        β = sigmoid(b)
//	δ = β·(v - α·Sᵀk̂)        S = α·S + k̂·δᵀ        o = Sᵀq̂
//	dst = RMSNorm(o)·Norm ⊙ silu(z)
//
// where rows before the first of a sequence are 0. Sums over KeyDim are in ascending
// order, with fused multiply-adds, so that a row's bits do not depend on how rows were cut
// into forwards.
func (p *Program) Delta(dst Buffer, d Delta, layer int) {
	if err := d.Check(); err != nil {
		p.fail("delta: %w", err)
		return
	}
	if w := p.width(dst); w != d.Values() {
		p.fail("delta: width %d for %d heads of %d", w, d.ValueHeads, d.ValueDim)
	}
	r := d.Group()
	var src []Buffer
	for _, part := range []struct {
		at   Strided
		run  int
		what string
	}{{d.Q, d.KeyDim, "q"}, {d.K, d.KeyDim, "k"}, {d.V, r * d.ValueDim, "v"}, {d.Z, r * d.ValueDim, "z"}, {d.B, r, "b"}, {d.A, r, "a"}} {
		w := p.width(part.at.Buffer)
		if part.at.First < 0 || part.at.Stride < part.run || part.at.Stride > w ||
			part.at.First+(d.KeyHeads-1)*part.at.Stride+part.run > w {
			p.fail("delta: %s of %d from %d, %d apart, for %d key heads, in width %d", part.what, part.run, part.at.First, part.at.Stride, d.KeyHeads, w)
		}
		if part.at.Buffer == dst {
			p.fail("delta: buffer %d is read and written", dst)
		}
		src = append(src, part.at.Buffer)
	}
	for _, v := range []struct {
		of   Vector
		n    int
		what string
	}{{d.Taps, d.Channels() * d.Conv, "taps"}, {d.LogDecay, d.ValueHeads, "decays"}, {d.TimeStep, d.ValueHeads, "time steps"}, {d.Norm, d.ValueDim, "norm"}} {
		if v.of == nil || v.of.Len() != v.n {
			p.fail("delta: %s of another length than %d", v.what, v.n)
		}
	}
	switch {
	case layer < 0:
		p.fail("delta: layer %d", layer)
	case p.stored(layer) != StoreNone:
		p.fail("delta: layer %d stores something twice", layer)
	}
	if p.err != nil {
		return
	}
	p.store(layer, LayerStore{Kind: StoreState, State: d.StateShape})
	p.add(Op{Kind: OpDelta, Dst: []Buffer{dst}, Src: src, Layer: layer, Eps: d.Eps, Norm: d.Norm, Delta: &d})
}
