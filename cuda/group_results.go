package cuda

import (
	"slices"

	"windrow/backend"
)

// Results norms the wanted rows and multiplies them with the head, of which each
// GPU has some of the vocabulary; the statistics are joined here, in its order.
func (p *groupPass) Results(x backend.Buffer, norm backend.Vector, eps float32, head backend.Matrix, w backend.Want) ([]backend.Result, error) {
	if p.failed() != nil {
		return nil, p.err
	}
	xb, nw, h := x.(*groupBuffer), norm.(*groupVector), head.(*groupMatrix)
	if h.in != xb.width || nw.n != xb.width || h.split == backend.SplitInputs {
		p.fail("results: norm %d and head %d for width %d", nw.n, h.in, xb.width)
		return nil, p.err
	}
	limit, err := w.Check(p.rows, h.out)
	if err != nil {
		p.fail("%w", err)
		return nil, p.err
	}
	if !p.whole("results", xb) {
		return nil, p.err
	}
	p.head = h
	y := headPart{head: h, want: w, limit: limit, ops: make([]op, len(p.passes))}
	parts, _, _ := h.headParts()
	for i := range p.passes {
		y.ops[i] = headOp(p.on(i, xb), nw.parts[i], eps, parts[i])
	}
	results := make([]backend.Result, 0, len(w.Rows))
	for rows := range slices.Chunk(w.Rows, headRows) {
		y.rows = rows
		if err := p.runHead(&results, y); err != nil {
			p.fail("%w", err)
			return nil, p.err
		}
	}
	return results, nil
}

// headPart is the head of at most headRows rows.
type headPart struct {
	ops   []op // of each GPU
	head  *groupMatrix
	want  backend.Want
	limit int
	rows  []int32
}

// on says which of a GPU's ids, n from first on, may be candidates. A limit of 0
// would be none: where there is no id, the only one under the limit is excepted.
func (y *headPart) on(first, n int) candidates {
	c := candidates{top: topOf(y.want, y.head.out), limit: int32(min(max(y.limit-first, 0), n)), except: -1}
	if except := int(y.want.Except) - first; except >= 0 && except < n {
		c.except = int32(except)
	}
	if c.limit == 0 {
		c.limit, c.except = 1, 0
	}
	return c
}

// runHead runs the head on at most headRows rows.
func (p *groupPass) runHead(results *[]backend.Result, y headPart) error {
	parts, first, _ := y.head.headParts()
	for i, q := range p.passes {
		q.wantRows(y.on(first[i], parts[i].out), y.rows)
		q.record(y.ops[i])
	}
	p.flush(nil)
	if p.err != nil {
		return p.err
	}
	return p.collect(results, y)
}

// headParts are the GPUs' parts of a head, the ids that they begin at, and how many
// of them count: where every GPU has to make all of it, the first.
func (m *groupMatrix) headParts() (parts []*matrix, first []int, count int) {
	if parts, first = m.asHead(); len(parts) > 0 {
		return parts, first, len(parts)
	}
	return m.parts, make([]int, len(m.parts)), 1
}

// collect appends the results that a flush has brought.
func (p *groupPass) collect(results *[]backend.Result, y headPart) error {
	parts, first, heads := y.head.headParts()
	top := topOf(y.want, y.head.out)
	logits, err := p.logits(y, parts[:heads], first)
	if err != nil {
		return err
	}
	list := make([]statistics, heads)
	for i, row := range y.rows {
		for j := range heads {
			s, err := readStats(p.g.shards[j].results.host.Bytes(), i, top)
			if err != nil {
				return err
			}
			for k := range s.top {
				s.top[k].ID += int32(first[j])
			}
			list[j] = s
		}
		r := joinStats(list, top).result()
		if err := y.want.Finish(&r, row, backend.LogitsOf(logits, i, y.head.out), y.limit, mostTop); err != nil {
			return err
		}
		*results = append(*results, r)
	}
	return nil
}

// logits are those of all rows where they are asked for, or needed, else nil.
func (p *groupPass) logits(y headPart, parts []*matrix, first []int) ([]float32, error) {
	if !y.want.Logits && y.want.TopK <= mostTop {
		return nil, nil
	}
	n, vocabulary := len(y.rows), y.head.out
	all := make([]float32, n*vocabulary)
	for i, m := range parts {
		b, part := p.g.shards[i], make([]float32, n*m.out)
		if err := b.downloadLogits(part, b.pass.plan.logits); err != nil {
			return nil, onGPU(i, err)
		}
		for r := range n {
			copy(all[r*vocabulary+first[i]:], part[r*m.out:(r+1)*m.out])
		}
	}
	return all, nil
}
