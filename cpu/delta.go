package cpu

import (
	"fmt"
	"math"

	"windrow/backend"
	"windrow/cpu/kernels"
)

// deltaWork is what gated DeltaNet needs besides the program's buffers.
type deltaWork struct {
	weights map[*backend.Delta]*deltaWeights
	// Of all rows: queries and keys [rows, Keys] after the L2 norm, values [rows, Values]
	// after the convolution, and decays and β [rows, ValueHeads].
	q, k, v, decay, beta buffer
}

// deltaWeights are the small weights of a layer in the order that the CPU reads them.
type deltaWeights struct {
	taps []float32 // [Conv, Channels], the oldest row's first
	rate []float64 // exp(A_log)
	step []float32 // dt_bias
	norm []float32
	ones []float32 // as long as the longest part of a key head
}

// takesDelta checks that the weights are this backend's, and lays them out.
func (f *forward) takesDelta(d *backend.Delta) error {
	var list [4][]float32
	for i, v := range []backend.Vector{d.Taps, d.LogDecay, d.TimeStep, d.Norm} {
		x, ok := v.(vector)
		if !ok {
			return fmt.Errorf("cpu: %v: a weight of another backend", backend.OpDelta)
		}
		list[i] = x
	}
	w := &deltaWeights{step: list[2], norm: list[3], ones: make([]float32, max(d.KeyDim, d.Group()*d.ValueDim))}
	for i := range w.ones {
		w.ones[i] = 1
	}
	for t := range d.Conv {
		for c := range d.Channels() {
			w.taps = append(w.taps, list[0][c*d.Conv+t])
		}
	}
	for _, a := range list[1] {
		w.rate = append(w.rate, math.Exp(float64(a)))
	}
	f.delta.weights[d] = w
	return nil
}

// deltaNet runs a layer's recurrence over the rows of each span: first what a row needs
// by itself and of the rows just before it, then heads and columns side by side, each
// over all rows, then the norm of what they made. Where the value heads of a key head follow
// each other it needs nothing of the others: where there are enough of them one goes through
// all three at once.
func (f *forward) deltaNet(dst *buffer, o *backend.Op, layer int) {
	d, m := o.Delta, &f.delta
	w := m.weights[d]
	m.q.sized(f.rows, d.Keys())
	m.k.sized(f.rows, d.Keys())
	m.v.sized(f.rows, d.Values())
	m.decay.sized(f.rows, d.ValueHeads)
	m.beta.sized(f.rows, d.ValueHeads)
	spans := f.values.Spans
	for i := range spans {
		moveRaw(spans[i].Storage.(*storage), layer, &d.StateShape)
	}
	columns := (d.ValueDim + stateColumns - 1) / stateColumns
	rows := func(worker, g, from, to int) {
		for row := from; row < to; row++ {
			f.deltaRow(&f.b.scratch[worker], d, w, spanOf(spans, row), layer, row, g)
		}
	}
	gated := func(g, from, to int) {
		for row := from; row < to; row++ {
			f.deltaGate(dst, d, w, row, g, o.Eps)
		}
	}
	if !d.Tiled && busy(1, f.b.pool.workers, []int{d.KeyHeads}) >= .9 {
		f.b.pool.run(len(spans)*d.KeyHeads, func(worker, i int) {
			span, g := &spans[i%len(spans)], i/len(spans)
			rows(worker, g, span.First, span.First+span.Rows)
			for head := g * d.Group(); head < (g+1)*d.Group(); head++ {
				for block := range columns {
					f.deltaColumns(&f.b.scratch[worker], dst, d, span, layer, head, block)
				}
			}
			gated(g, span.First, span.First+span.Rows)
		})
	} else {
		block := f.rowBlock(d.KeyHeads)
		n := (f.rows + block - 1) / block
		f.b.pool.run(n*d.KeyHeads, func(worker, i int) {
			rows(worker, i/n, i%n*block, min(i%n*block+block, f.rows))
		})
		f.b.pool.run(len(spans)*d.ValueHeads*columns, func(worker, i int) {
			head := i / columns
			f.deltaColumns(&f.b.scratch[worker], dst, d, &spans[head/d.ValueHeads], layer, head%d.ValueHeads, i%columns)
		})
		f.worth(4*f.rows*dst.width, n*d.KeyHeads, func(_, i int) {
			gated(i/n, i%n*block, min(i%n*block+block, f.rows))
		})
	}
	for i := range spans {
		f.deltaLog(&spans[i], layer, d)
	}
}

// deltaGate norms what the value heads of a key head made of a row, and gates it.
func (f *forward) deltaGate(dst *buffer, d *backend.Delta, w *deltaWeights, row, g int, eps float32) {
	z := &f.buffers[d.Z.Buffer]
	for i := range d.Group() {
		at := row*z.width + d.Z.First + g*d.Z.Stride + i*d.ValueDim
		y := dst.data[row*dst.width+(g*d.Group()+i)*d.ValueDim:][:d.ValueDim]
		f.b.k.RMSNorm(y, y, w.norm, eps)
		f.b.k.SiluMul(y, z.data[at:at+d.ValueDim], y)
	}
}

// moveRaw copies the rows before the convolution that a forward does not bring itself to
// where it writes.
func moveRaw(c *storage, layer int, s *backend.StateShape) {
	step := c.States.Step()
	if step.InPlace() || step.From == nil {
		return
	}
	from, to := (*step.From).layers[layer].raw, (*step.To).layers[layer].raw
	n, rows := s.Channels(), s.RawRows(c.layout.LogRows)
	for index := max(0, step.Settle-s.Conv+1); index < step.Base; index++ {
		at := index % rows * n
		copy(to[at:at+n], from[at:at+n])
	}
}

// deltaRow makes one part of a row's queries, keys, values and gates, and keeps its
// raw projections where a later row needs them.
func (f *forward) deltaRow(s *scratch, d *backend.Delta, w *deltaWeights, span *backend.Span, layer, row, g int) {
	c := span.Storage.(*storage)
	step, k, m := c.States.Step(), f.b.k, &f.delta
	var before []float32
	if step.From != nil {
		before = (*step.From).layers[layer].raw
	}
	after := (*step.To).layers[layer].raw
	index, n, rows := span.Base+row-span.First, d.Channels(), d.RawRows(c.layout.LogRows)
	r, keys := d.Group(), d.Keys()
	oldest := max(0, index-d.Conv+1) // that a tap takes
	window := s.window[:index-oldest+1]
	taps := w.taps[(d.Conv-len(window))*n:]
	conv := func(dst []float32, part backend.Strided, channel int) {
		src := &f.buffers[part.Buffer]
		first := part.First + g*part.Stride
		for t := range window {
			if at := oldest + t; at < span.Base {
				window[t] = before[at%rows*n+channel:]
			} else {
				window[t] = src.data[(at-span.Base+span.First)*src.width+first:]
			}
		}
		sums := kernels.Grown(&s.sums, len(dst))
		k.Taps(sums, window, taps[channel:], n)
		k.SiluMul(dst, sums, w.ones[:len(dst)])
		if index > step.Settle-d.Conv {
			at := row*src.width + first
			copy(after[index%rows*n+channel:][:len(dst)], src.data[at:])
		}
	}
	q, key := m.q.data[row*keys+g*d.KeyDim:][:d.KeyDim], m.k.data[row*keys+g*d.KeyDim:][:d.KeyDim]
	conv(q, d.Q, g*d.KeyDim)
	conv(key, d.K, keys+g*d.KeyDim)
	conv(m.v.data[row*d.Values()+g*r*d.ValueDim:][:r*d.ValueDim], d.V, 2*keys+g*r*d.ValueDim)
	clear(window) // of a sequence that may be closed next
	unit := func(x []float32, scale float64) {
		k.Scale(x, float32(scale/math.Sqrt(float64(k.SumSquares(x))+backend.DeltaEps)))
	}
	unit(q, 1/math.Sqrt(float64(d.KeyDim)))
	unit(key, 1)
	at := func(part backend.Strided, i int) float64 {
		b := &f.buffers[part.Buffer]
		return float64(b.data[row*b.width+part.First+g*part.Stride+i])
	}
	for i := range r {
		j := g*r + i
		m.decay.data[row*d.ValueHeads+j] = float32(math.Exp(-w.rate[j] * softplus(at(d.A, i)+float64(w.step[j]))))
		m.beta.data[row*d.ValueHeads+j] = float32(1 / (1 + math.Exp(-at(d.B, i))))
	}
}

// softplus is ln(1 + e^x).
func softplus(x float64) float64 {
	if x > 20 {
		return x
	}
	return math.Log1p(math.Exp(x))
}

// deltaColumns runs some columns of a value head over the rows of a span: what was
// logged before is folded in, rows before Settle are added for good, and those after are
// logged, on a copy that is dropped.
func (f *forward) deltaColumns(s *scratch, dst *buffer, d *backend.Delta, span *backend.Span, layer, head, block int) {
	c := span.Storage.(*storage)
	step, k, m := c.States.Step(), f.b.k, &f.delta
	from, to, columns := stateBlock(&d.StateShape, head, block)
	log, g := c.layout.LogRows, d.KeyHead(head)
	first := head*d.ValueDim + block*stateColumns // column of a row of values

	work := kernels.Grown(&s.keys, (d.KeyDim+1)*columns)
	local, spent := work[:d.KeyDim*columns], work[d.KeyDim*columns:]
	target := &(*step.To).layers[layer]
	folded := step.Folded(layer)
	if step.From == nil {
		clear(local)
	} else {
		source := &(*step.From).layers[layer]
		now := source.s[from:to]
		for index := folded; index < span.Base; index++ {
			at := index % log
			k.DeltaFold(local, now, source.keys[at*d.Keys()+g*d.KeyDim:][:d.KeyDim], source.deltas[at*d.Values()+first:][:columns], source.decays[at*d.ValueHeads+head])
			now = local
		}
		if folded == span.Base {
			copy(local, now)
		}
	}
	for r := span.First; r < span.First+span.Rows; r++ {
		index := span.Base + r - span.First
		if index == step.Settle && !(step.InPlace() && folded == step.Settle) {
			copy(target.s[from:to], local)
		}
		delta := spent
		if index >= step.Settle {
			delta = target.deltas[index%log*d.Values()+first:][:columns]
		}
		at := r*d.Keys() + g*d.KeyDim
		k.DeltaStep(local, m.q.data[at:at+d.KeyDim], m.k.data[at:at+d.KeyDim], m.v.data[r*d.Values()+first:][:columns],
			delta, dst.data[r*dst.width+first:][:columns], m.decay.data[r*d.ValueHeads+head], m.beta.data[r*d.ValueHeads+head])
	}
}

// deltaLog logs the keys and decays of the rows that may be taken back, once all columns
// have folded in those that were logged before. Deltas are there.
func (f *forward) deltaLog(span *backend.Span, layer int, d *backend.Delta) {
	c := span.Storage.(*storage)
	step, m := c.States.Step(), &f.delta
	y := &(*step.To).layers[layer]
	for index := step.Settle; index < span.Base+span.Rows; index++ {
		at, r := index%c.layout.LogRows, span.First+index-span.Base
		copy(y.keys[at*d.Keys():(at+1)*d.Keys()], m.k.data[r*d.Keys():])
		copy(y.decays[at*d.ValueHeads:(at+1)*d.ValueHeads], m.decay.data[r*d.ValueHeads:])
	}
	c.States.Done(layer)
}
