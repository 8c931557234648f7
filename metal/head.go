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

	want    []int // places in run.want of which logits are taken
	taken   int   // those whose results are known
	encoded int   // those after them that the GPU is at
	top     int   // candidates that it finds of each
	// told are the places of rows whose hidden states are wanted, [told, width] in f32, and
	// telling says that the GPU is at them.
	told    []int
	hidden  view
	telling bool
}

// takeHead takes memory for a chunk of the wanted rows.
func (r *run) takeHead() error {
	h, b, y := r.f.head, r.f.b, &r.head
	for i, w := range r.want {
		if !w.Bare {
			y.want = append(y.want, i)
		}
		if w.Hidden {
			y.told = append(y.told, i)
		}
	}
	n, top := min(len(y.want), headRows), 1
	for _, i := range y.want {
		top = max(top, r.want[i].Candidates(min(mostTop, h.out)))
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
		{&y.states, n * h.in * normed.size(), normed}, {&y.logits, 4 * n * h.out, elemF32},
		{&y.partials, partialBytes(n, h.out, top), elemBytes}, {&y.out, n * resultBytes(top), elemBytes},
		{&y.hidden, 4 * len(y.told) * h.in, elemF32},
	} {
		if p.bytes == 0 {
			continue
		}
		var err error
		if *p.to, err = b.arena.take(b.memory, p.bytes, p.elem); err != nil {
			return err
		}
	}
	r.results = make([]backend.Result, 0, len(y.want))
	return nil
}

// encodeHead norms the next wanted rows of x, multiplies them with the head, and
// takes the statistics of each row's logits; before the first of them the states of
// those whose are wanted.
func (r *run) encodeHead(e encoder, h *head, x view) {
	y := &r.head
	if y.taken == 0 && len(y.told) > 0 {
		y.telling = true
		rmsNormWanted(e, y.hidden, x, h.norm, r.told, len(y.told), h.in, h.eps)
	}
	chunk := y.want[y.taken:min(len(y.want), y.taken+headRows)]
	n := len(chunk)
	if y.encoded = n; n > 0 {
		y.top = 1
		for _, i := range chunk {
			y.top = max(y.top, r.want[i].Candidates(min(mostTop, h.out)))
		}
		// Rows of the head are those of decode forwards wherever there are few.
		decode := r.decode || r.prompts || n <= invariantRows
		rmsNormWanted(e, y.states, x, h.norm, r.wanted.at(4*y.taken), n, h.in, h.eps)
		project(e, []view{y.logits}, y.states, n, []linear{h.linear}, decode)
		rowResults(e, y.out, y.partials, y.logits, n, h.out, int(h.bars.Limit), int(h.bars.Except), y.top)
	}
	if y.taken+n == len(y.want) {
		r.next++
	}
}

// tell joins the results of rows and the states of those whose are wanted.
func (r *run) tell() {
	y, width := &r.head, r.f.head.in
	all := make([]backend.Result, 0, len(r.want))
	states := make([]float32, len(y.told)*width)
	floats(states, r.f.b.memory.bytes(y.hidden, 4*len(states)))
	logits := r.results
	for _, w := range r.want {
		result := backend.Result{Argmax: -1}
		if !w.Bare {
			result, logits = logits[0], logits[1:]
		}
		if w.Hidden {
			result.Hidden, states = states[:width:width], states[width:]
		}
		all = append(all, result)
	}
	r.results = all
}

// collectHead takes the results that the GPU has made.
func (r *run) collectHead() error {
	y, h, memory := &r.head, r.f.head, r.f.b.memory
	n := y.encoded
	chunk := y.want[y.taken : y.taken+n]
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
		w := &r.want[chunk[i]]
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
