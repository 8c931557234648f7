package metal

import (
	"windrow/backend"
)

// headRows bounds the rows that go through the head at once: 128 rows of 152 k
// logits are 78 MB.
const headRows = 128

// head is the head of a program.
type head struct {
	linear
	norm view
	eps  float32
	bars backend.Bars
}

func (f *forward) addHead(o *backend.Op) error {
	h := &head{eps: o.Eps, bars: o.Bars}
	var err error
	if h.linear, err = f.linearOf(o, o.Weights[0]); err != nil {
		return err
	}
	if h.norm, err = f.vectorOf(o, o.Norm); err != nil {
		return err
	}
	f.head = h
	f.add(o, op{src: o.Src, reads: asF32, head: h})
	return nil
}

// headRun is how far the head of a forward is. It takes a chunk of the wanted rows
// at a time, in the same places.
type headRun struct {
	states, logits, partials, out view

	taken   int // wanted rows whose results are known
	encoded int // those after them that the GPU is at
	top     int // candidates that it finds of each
}

// takeHead takes memory for a chunk of the wanted rows.
func (r *run) takeHead() error {
	h, b := r.f.head, r.f.b
	n, top := min(len(r.want), headRows), 1
	for _, w := range r.want {
		top = max(top, w.Candidates(min(mostTop, h.out)))
	}
	normed := elemF32
	if b.operand(h.linear) == asBF16 {
		normed = elemBF16
	}
	for _, p := range []struct {
		to    *view
		bytes int
		elem  elem
	}{
		{&r.head.states, n * h.in * normed.size(), normed}, {&r.head.logits, 4 * n * h.out, elemF32},
		{&r.head.partials, partialBytes(n, h.out, top), elemBytes}, {&r.head.out, n * resultBytes(top), elemBytes},
	} {
		var err error
		if *p.to, err = b.arena.take(b.memory, p.bytes, p.elem); err != nil {
			return err
		}
	}
	r.results = make([]backend.Result, 0, len(r.want))
	return nil
}

// encodeHead norms the next wanted rows of x, multiplies them with the head, and
// takes the statistics of each row's logits.
func (r *run) encodeHead(e encoder, h *head, x view) {
	y := &r.head
	chunk := r.want[y.taken:min(len(r.want), y.taken+headRows)]
	n := len(chunk)
	y.encoded, y.top = n, 1
	for _, w := range chunk {
		y.top = max(y.top, w.Candidates(min(mostTop, h.out)))
	}
	// Rows of the head are those of decode forwards wherever there are few.
	decode := r.decode || r.prompts || n <= invariantRows
	rmsNormWanted(e, y.states, x, h.norm, r.wanted.at(4*y.taken), n, h.in, h.eps)
	project(e, []view{y.logits}, y.states, n, []linear{h.linear}, decode)
	rowResults(e, y.out, y.partials, y.logits, n, h.out, int(h.bars.Limit), int(h.bars.Except), y.top)
	if y.taken+n == len(r.want) {
		r.next++
	}
}

// collectHead takes the results that the GPU has made.
func (r *run) collectHead() error {
	y, h, memory := &r.head, r.f.head, r.f.b.memory
	n := y.encoded
	chunk := r.want[y.taken : y.taken+n]
	y.taken, y.encoded = y.taken+n, 0
	data := memory.bytes(y.out, n*resultBytes(y.top))
	if data == nil { // only costs are counted
		r.results = append(r.results, make([]backend.Result, n)...)
		return nil
	}
	results, err := decodeResults(data, n, y.top)
	if err != nil {
		return err
	}
	for i := range results {
		w := &chunk[i]
		var z []float32
		if w.NeedsLogits(&results[i], mostTop) {
			z = make([]float32, h.out)
			floats(z, memory.bytes(y.logits.at(4*i*h.out), 4*h.out))
		}
		if err := w.Finish(&results[i], z, h.bars, mostTop); err != nil {
			return err
		}
	}
	r.results = append(r.results, results...)
	return nil
}
