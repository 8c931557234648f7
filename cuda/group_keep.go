package cuda

import (
	"slices"

	"windrow/backend"
)

// groupKept is the operations of a forward on all GPUs.
type groupKept struct {
	g       *Group
	parts   []*kept
	split   bool // keys and values lie by heads
	head    headPart
	running bool
}

// Keep ends the pass and keeps its operations.
func (p *groupPass) Keep() (backend.Recording, error) {
	k := p.keep()
	if err := p.End(); err != nil || k == nil {
		return nil, err
	}
	return k, nil
}

func (p *groupPass) keep() *groupKept {
	if p.failed() != nil || p.head == nil || len(p.spans) == 0 {
		return nil
	}
	k := &groupKept{g: p.g, split: p.spans[0].KV.(*groupKV).split}
	k.head.head = p.head
	for _, q := range p.passes {
		part := q.keep()
		if part == nil {
			return nil
		}
		k.parts = append(k.parts, part)
		k.head.ops = append(k.head.ops, *part.head())
	}
	return k
}

// Start begins a forward. In a group nothing is readied for the one after it.
func (k *groupKept) Start(v backend.Values) error {
	first, err := k.g.Begin(len(v.Tokens))
	if err != nil {
		return err
	}
	p := first.(*groupPass)
	k.fill(p, v)
	if p.failed() == nil {
		p.ready(nil)
		p.onAll((*pass).launch)
	}
	for _, q := range p.passes {
		q.done(false)
		q.forget()
	}
	if p.err != nil {
		return p.End()
	}
	k.running = true
	return nil
}

// fill gives the operations on each GPU their values.
func (k *groupKept) fill(p *groupPass, v backend.Values) {
	y := &k.head
	limit, err := wantedOf(&v.Want, p.rows, y.head.out)
	if err != nil {
		p.fail("%w", err)
		return
	}
	if !p.spread("start", v.Spans, k.split) {
		return
	}
	y.want, y.limit, y.rows = v.Want, limit, v.Want.Rows[:min(len(v.Want.Rows), headRows)]
	parts, first, _ := y.head.headParts()
	for i, q := range p.passes {
		q.use(k.parts[i])
		v.Spans = p.parts[i]
		q.fill(k.parts[i], v)
		q.wantRows(y.on(first[i], parts[i].out), y.rows)
	}
}

// Wait waits for the forward that Start began.
func (k *groupKept) Wait() ([]backend.Result, error) {
	if !k.running {
		return nil, errNotStarted
	}
	k.running = false
	p := &k.g.pass
	results, err := k.results(p)
	return ended(p, results, err)
}

func (k *groupKept) results(p *groupPass) ([]backend.Result, error) {
	p.onAll((*pass).wait)
	if p.err != nil {
		return nil, p.err
	}
	y := k.head
	results := make([]backend.Result, 0, len(y.want.Rows))
	if err := p.collect(&results, y); err != nil {
		return nil, err
	}
	for rows := range slices.Chunk(y.want.Rows[len(y.rows):], headRows) {
		y.rows = rows
		if err := p.runHead(&results, y); err != nil {
			return nil, err
		}
	}
	return results, nil
}

var _ backend.Keeper = (*groupPass)(nil)
