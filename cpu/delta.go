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
	taps [][]float32 // by tap, the oldest row's first: [Channels]
	rate []float64   // exp(A_log)
	step []float32   // dt_bias
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
		tap := make([]float32, d.Channels())
		for c := range tap {
			tap[c] = list[0][c*d.Conv+t]
		}
		w.taps = append(w.taps, tap)
	}
	for _, a := range list[1] {
		w.rate = append(w.rate, math.Exp(float64(a)))
	}
	f.delta.weights[d] = w
	return nil
}

// deltaNet runs a layer's recurrence over the rows of each span: first what a row needs
// by itself and of the rows just before it, then heads and columns side by side, each
// over all rows, then the norm of what they made.
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
	f.b.pool.run(f.rows*d.KeyHeads, func(_, i int) {
		row := i / d.KeyHeads
		f.deltaRow(d, w, spanOf(spans, row), layer, row, i%d.KeyHeads)
	})
	blocks := (d.ValueDim + stateColumns - 1) / stateColumns
	f.b.pool.run(len(spans)*d.ValueHeads*blocks, func(worker, i int) {
		head := i / blocks
		f.deltaColumns(&f.b.scratch[worker], dst, d, &spans[head/d.ValueHeads], layer, head%d.ValueHeads, i%blocks)
	})
	for i := range spans {
		f.deltaLog(&spans[i], layer, d)
	}
	z := &f.buffers[d.Z.Buffer]
	f.rowsEach(4*dst.width, func(_, r int) {
		for j := range d.ValueHeads {
			g := j / d.Group()
			at := r*z.width + d.Z.First + g*d.Z.Stride + j%d.Group()*d.ValueDim
			y := dst.data[r*dst.width+j*d.ValueDim : r*dst.width+(j+1)*d.ValueDim]
			f.b.k.RMSNorm(y, y, w.norm, o.Eps)
			f.b.k.SiluMul(y, z.data[at:at+d.ValueDim], y)
		}
	})
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
func (f *forward) deltaRow(d *backend.Delta, w *deltaWeights, span *backend.Span, layer, row, g int) {
	c := span.Storage.(*storage)
	step, k, m := c.States.Step(), f.b.k, &f.delta
	var before []float32
	if step.From != nil {
		before = (*step.From).layers[layer].raw
	}
	after := (*step.To).layers[layer].raw
	index, n, rows := span.Base+row-span.First, d.Channels(), d.RawRows(c.layout.LogRows)
	r, keys := d.Group(), d.Keys()
	conv := func(dst []float32, part backend.Strided, channel int) {
		src := &f.buffers[part.Buffer]
		first := part.First + g*part.Stride
		clear(dst)
		for t, tap := range w.taps {
			var x []float32
			switch at := index - d.Conv + 1 + t; {
			case at < 0: // before the sequence's beginning
				continue
			case at < span.Base:
				x = before[at%rows*n+channel:]
			default:
				x = src.data[(at-span.Base+span.First)*src.width+first:]
			}
			k.MulAdd(dst, x[:len(dst)], tap[channel:channel+len(dst)])
		}
		k.SiluMul(dst, dst, w.ones[:len(dst)])
		if index > step.Settle-d.Conv {
			at := row*src.width + first
			copy(after[index%rows*n+channel:][:len(dst)], src.data[at:])
		}
	}
	q, key := m.q.data[row*keys+g*d.KeyDim:][:d.KeyDim], m.k.data[row*keys+g*d.KeyDim:][:d.KeyDim]
	conv(q, d.Q, g*d.KeyDim)
	conv(key, d.K, keys+g*d.KeyDim)
	conv(m.v.data[row*d.Values()+g*r*d.ValueDim:][:r*d.ValueDim], d.V, 2*keys+g*r*d.ValueDim)
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
