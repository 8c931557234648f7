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
	// Of all rows: queries and keys after the L2 norm, and values after the convolution, each
	// by key head [KeyHeads, rows, …], where values of key head g are the g-th part of all;
	// and decays and β [rows, ValueHeads].
	q, k, v, decay, beta buffer
}

// deltaWeights are the small weights of a layer in the order that the CPU reads them.
type deltaWeights struct {
	taps []float32 // [Conv, Channels], the oldest row's first
	rate []float64 // exp(A_log)
	step []float32 // dt_bias
	norm []float32
	ones []float32
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
	w := &deltaWeights{step: list[2], norm: list[3], ones: make([]float32, 1024)}
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
		for from < to {
			span := spanOf(spans, from)
			end := min(to, span.First+span.Rows)
			f.deltaRows(&f.b.scratch[worker], d, w, span, layer, from, end, g)
			from = end
		}
	}
	if !d.Tiled && busy(1, f.b.pool.workers, []int{d.KeyHeads}) >= .9 {
		f.b.pool.run(len(spans)*d.KeyHeads, func(worker, i int) {
			span, g := &spans[i%len(spans)], i/len(spans)
			rows(worker, g, span.First, span.First+span.Rows)
			f.deltaBlocks(&f.b.scratch[worker], dst, d, span, layer, g*d.Group()*columns, (g+1)*d.Group()*columns)
			f.deltaGate(dst, d, w, span.First, span.First+span.Rows, g, o.Eps)
		})
	} else {
		block := f.rowBlock(d.KeyHeads)
		n := (f.rows + block - 1) / block
		f.b.pool.run(n*d.KeyHeads, func(worker, i int) {
			rows(worker, i/n, i%n*block, min(i%n*block+block, f.rows))
		})
		blocks := d.ValueHeads * columns
		f.b.pool.run(len(spans)*blocks, func(worker, i int) {
			f.deltaBlocks(&f.b.scratch[worker], dst, d, &spans[i/blocks], layer, i%blocks, i%blocks+1)
		})
		f.worth(4*f.rows*dst.width, n*d.KeyHeads, func(_, i int) {
			f.deltaGate(dst, d, w, i%n*block, min(i%n*block+block, f.rows), i/n, o.Eps)
		})
	}
	for i := range spans {
		f.deltaLog(&spans[i], layer, d)
	}
}

// deltaGate norms what the value heads of a key head made of rows, and gates it.
func (f *forward) deltaGate(dst *buffer, d *backend.Delta, w *deltaWeights, from, to, g int, eps float32) {
	z, k, width := &f.buffers[d.Z.Buffer], f.b.k, d.Group()*d.ValueDim
	for i := range d.Group() {
		y := dst.data[from*dst.width+g*width+i*d.ValueDim:]
		k.RMSNormRows(y, dst.width, y, dst.width, w.norm, d.ValueDim, to-from, eps)
	}
	for row := from; row < to; row++ {
		at := row*z.width + d.Z.First + g*d.Z.Stride
		y := dst.data[row*dst.width+g*width:][:width]
		k.SiluMul(y, z.data[at:at+width], y)
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

// deltaRows makes one part of the queries, keys, values and gates of rows of a span, and
// keeps their raw projections where a later row needs them.
func (f *forward) deltaRows(s *scratch, d *backend.Delta, w *deltaWeights, span *backend.Span, layer, from, to, g int) {
	c := span.Storage.(*storage)
	step, k, m := c.States.Step(), f.b.k, &f.delta
	var before []float32
	if step.From != nil {
		before = (*step.From).layers[layer].raw
	}
	after := (*step.To).layers[layer].raw
	n, rows := d.Channels(), d.RawRows(c.layout.LogRows)
	r, keys := d.Group(), d.Keys()
	conv := func(dst []float32, part backend.Strided, channel int) {
		src := &f.buffers[part.Buffer]
		first, width := part.First+g*part.Stride, len(dst)/(to-from)
		row := from
		for ; row < to; row++ {
			index := span.Base + row - span.First
			oldest := max(0, index-d.Conv+1) // that a tap takes
			if oldest >= span.Base && index-oldest+1 == d.Conv && k.TapsRows != nil {
				break // this forward has the rows of all others' taps
			}
			window := s.window[:index-oldest+1]
			for t := range window {
				if at := oldest + t; at < span.Base {
					window[t] = before[at%rows*n+channel:]
				} else {
					window[t] = src.data[(at-span.Base+span.First)*src.width+first:]
				}
			}
			k.Taps(dst[(row-from)*width:][:width], window, w.taps[(d.Conv-len(window))*n+channel:], n)
			clear(window) // of a sequence that may be closed next
		}
		if row < to {
			k.TapsRows(dst[(row-from)*width:], width, to-row, src.data[(row-d.Conv+1)*src.width+first:], src.width, w.taps[channel:], d.Conv, n)
		}
		for at := 0; at < len(dst); at += len(w.ones) {
			x := dst[at:min(at+len(w.ones), len(dst))]
			k.SiluMul(x, x, w.ones[:len(x)])
		}
		for row := max(from, span.First+step.Settle-d.Conv+1-span.Base); row < to; row++ {
			at := row*src.width + first
			copy(after[(span.Base+row-span.First)%rows*n+channel:][:width], src.data[at:])
		}
	}
	q, key := m.part(&m.q, g, from, to, f.rows, d.KeyDim), m.part(&m.k, g, from, to, f.rows, d.KeyDim)
	conv(q, d.Q, g*d.KeyDim)
	conv(key, d.K, keys+g*d.KeyDim)
	conv(m.part(&m.v, g, from, to, f.rows, r*d.ValueDim), d.V, 2*keys+g*r*d.ValueDim)
	k.UnitRows(q, d.KeyDim, to-from, 1/math.Sqrt(float64(d.KeyDim)), backend.DeltaEps)
	k.UnitRows(key, d.KeyDim, to-from, 1, backend.DeltaEps)
	at := func(part backend.Strided, row, i int) float64 {
		b := &f.buffers[part.Buffer]
		return float64(b.data[row*b.width+part.First+g*part.Stride+i])
	}
	// Of each row and head the time step, of which decays are made, and behind them β.
	n = (to - from) * r
	gates := kernels.Grown(&s.gates, 2*n)
	for i := range n {
		gates[i] = at(d.A, from+i/r, i%r) + float64(w.step[g*r+i%r])
		gates[n+i] = gates[i]
	}
	k.Exps(gates[n:])
	for i := range n {
		gates[i] = -w.rate[g*r+i%r] * softplus(gates[i], gates[n+i])
		gates[n+i] = -at(d.B, from+i/r, i%r)
	}
	k.Exps(gates)
	for i := range n {
		j := (from+i/r)*d.ValueHeads + g*r + i%r
		m.decay.data[j], m.beta.data[j] = float32(gates[i]), float32(1/(1+gates[n+i]))
	}
}

// part is where a key head's part of rows lies in b, which has a part of all rows after the
// other.
func (m *deltaWork) part(b *buffer, g, from, to, rows, width int) []float32 {
	return b.data[(g*rows+from)*width : (g*rows+to)*width]
}

// softplus is ln(1 + e^x), with e^x.
func softplus(x, exp float64) float64 {
	if x > 20 {
		return x
	}
	return math.Log1p(exp)
}

// deltaBlocks runs blocks of columns of value heads, in their order, over the rows of a
// span: what was logged before is folded in, rows before Settle are added for good, and those
// after are logged, on a copy that is dropped.
func (f *forward) deltaBlocks(s *scratch, dst *buffer, d *backend.Delta, span *backend.Span, layer, from, to int) {
	columns := (d.ValueDim + stateColumns - 1) / stateColumns
	for i := from; i < to; i++ {
		x := f.deltaBlock(s, d, span, layer, i/columns, i%columns, 0)
		if i+1 < to && x.columns == kernels.DeltaColumns && d.ValueDim == x.columns && f.b.k.DeltaRows != nil {
			// Two value heads of one key head.
			y := f.deltaBlock(s, d, span, layer, i+1, 0, 1)
			f.deltaSteps(s, dst, d, span, layer, &x, &y)
			i++
			continue
		}
		f.deltaSteps(s, dst, d, span, layer, &x, nil)
	}
}

// deltaBlock is a block of columns at work.
type deltaBlock struct {
	head, first, columns int       // first: column of a row of values
	from, to             int       // where it lies in the state
	local                []float32 // a copy of the state
}

// deltaBlock folds what was logged before into a copy of a block. place is 0, or 1 for a
// second one.
func (f *forward) deltaBlock(s *scratch, d *backend.Delta, span *backend.Span, layer, head, block, place int) deltaBlock {
	c := span.Storage.(*storage)
	step, k := c.States.Step(), f.b.k
	from, to, columns := stateBlock(&d.StateShape, head, block)
	log, g := c.layout.LogRows, d.KeyHead(head)
	first := head*d.ValueDim + block*stateColumns
	size := d.KeyDim * columns
	local := kernels.Grown(&s.keys, 2*size+2*stateColumns)[place*size:][:size]
	x := deltaBlock{head, first, columns, from, to, local}
	if step.From == nil {
		clear(local)
		return x
	}
	source := &(*step.From).layers[layer]
	now := source.s[from:to]
	folded := step.Folded(layer)
	for index := folded; index < span.Base; index++ {
		at := index % log
		if k.FoldRows != nil && columns%kernels.DeltaColumns == 0 {
			// As far as the log has them in a row.
			n := min(span.Base-index, log-at)
			k.FoldRows(local, now, columns, d.KeyDim, n, source.keys[at*d.Keys()+g*d.KeyDim:], d.Keys(), source.deltas[at*d.Values()+first:], d.Values(), source.decays[at*d.ValueHeads+head:], d.ValueHeads)
			now, index = local, index+n-1
			continue
		}
		k.DeltaFold(local, now, source.keys[at*d.Keys()+g*d.KeyDim:][:d.KeyDim], source.deltas[at*d.Values()+first:][:columns], source.decays[at*d.ValueHeads+head])
		now = local
	}
	if folded == span.Base {
		copy(local, now)
	}
	return x
}

// deltaSteps goes through the rows of a span for one block, or for two of a key head.
func (f *forward) deltaSteps(s *scratch, dst *buffer, d *backend.Delta, span *backend.Span, layer int, x, second *deltaBlock) {
	c := span.Storage.(*storage)
	step, k, m := c.States.Step(), f.b.k, &f.delta
	log, g, r := c.layout.LogRows, d.KeyHead(x.head), d.Group()
	target := &(*step.To).layers[layer]
	folded := step.Folded(layer)
	spent := kernels.Grown(&s.keys, 2*d.KeyDim*x.columns+2*stateColumns)[2*d.KeyDim*x.columns:]
	for row, end := span.First, span.First+span.Rows; row < end; {
		index := span.Base + row - span.First
		if index == step.Settle && !(step.InPlace() && folded == step.Settle) {
			copy(target.s[x.from:x.to], x.local)
			if second != nil {
				copy(target.s[second.from:second.to], second.local)
			}
		}
		// Up to Settle deltas are not kept; then they go as far as the log has room in a row.
		n, deltas, apart := min(end-row, step.Settle-index), spent, 0
		if index >= step.Settle {
			n, deltas, apart = min(end-row, log-index%log), target.deltas[index%log*d.Values()+x.first:], d.Values()
		}
		queries, keys := m.part(&m.q, g, row, row+n, f.rows, d.KeyDim), m.part(&m.k, g, row, row+n, f.rows, d.KeyDim)
		width := r * d.ValueDim // of a part of values
		values := m.part(&m.v, x.first/width, row, row+n, f.rows, width)[x.first%width:]
		o := dst.data[row*dst.width+x.first:]
		decay, beta := m.decay.data[row*d.ValueHeads+x.head:], m.beta.data[row*d.ValueHeads+x.head:]
		const half = kernels.DeltaColumns
		switch {
		case k.DeltaRows != nil && (second != nil || x.columns == 2*half):
			y := &s.delta
			y.Rows, y.Keys, y.Q, y.K = n, d.KeyDim, queries, keys
			y.StrideS, y.StrideV, y.StrideD, y.StrideO, y.StrideH = x.columns, width, apart, dst.width, d.ValueHeads
			y.Parts[0] = kernels.DeltaPart{S: x.local, V: values, D: deltas, O: o, Decay: decay, Beta: beta}
			if second != nil {
				y.Parts[1] = kernels.DeltaPart{S: second.local, V: values[half:], D: deltas[half:], O: o[half:], Decay: decay[1:], Beta: beta[1:]}
			} else {
				y.Parts[1] = kernels.DeltaPart{S: x.local[half:], V: values[half:], D: deltas[half:], O: o[half:], Decay: decay, Beta: beta}
			}
			k.DeltaRows(y)
		default:
			for i := range n {
				k.DeltaStep(x.local, queries[i*d.KeyDim:(i+1)*d.KeyDim], keys[i*d.KeyDim:(i+1)*d.KeyDim], values[i*width:][:x.columns],
					deltas[i*apart:][:x.columns], o[i*dst.width:][:x.columns], decay[i*d.ValueHeads], beta[i*d.ValueHeads])
			}
		}
		row += n
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
		for g := range d.KeyHeads {
			copy(y.keys[at*d.Keys()+g*d.KeyDim:], m.part(&m.k, g, r, r+1, f.rows, d.KeyDim))
		}
		copy(y.decays[at*d.ValueHeads:(at+1)*d.ValueHeads], m.decay.data[r*d.ValueHeads:])
	}
	c.States.Done(layer)
}
