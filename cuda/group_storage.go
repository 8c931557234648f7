package cuda

import (
	"errors"
	"fmt"

	"windrow/backend"
	"windrow/backend/paging"
	"windrow/cuda/driver"
)

// groupStorage is a sequence's keys, values and states over the GPUs of a group: by heads,
// or whole on each, which the first forward decides. A KV head lies on several GPUs where
// they are more than KV heads. What is reserved before it is made as heads that can be
// shared out are, and what is imported before it is brought to that form. Pages are each
// GPU's own; states are had and given up on all GPUs at once.
type groupStorage struct {
	g        *Group
	layout   backend.Layout
	parts    []*storage   // nil: nothing has been reserved or stored
	states   *groupStates // nil, too, where no layer has some
	split    bool
	used     bool // by a forward
	imported int  // pages before that
	reserved int
	open     bool
}

// NewStorage makes storage that takes its pages as they are written.
func (g *Group) NewStorage(l backend.Layout) (backend.Storage, error) {
	if err := checkLayout(l); err != nil {
		return nil, err
	}
	return &groupStorage{g: g, layout: l, open: true}, nil
}

// Budget is what all storage is taken from: by heads over all GPUs, copies of heads as
// often as they are there, whole ones once.
func (g *Group) Budget() *backend.Budget { return &g.budget }

func (c *groupStorage) Layout() backend.Layout { return c.layout }

// Bytes is what it takes on all GPUs by heads, copies as well, or whole on each of them.
func (c *groupStorage) Bytes() (n int64) {
	if c.states != nil {
		n = c.states.Bytes()
	}
	for i, p := range c.parts {
		if i == 0 || c.split {
			n += p.Bytes()
		}
	}
	return n
}

func (c *groupStorage) Close() {
	c.open = false
	c.drop()
}

func (c *groupStorage) drop() {
	for _, p := range c.parts {
		p.Close()
	}
	if c.states != nil {
		c.states.Close()
	}
	c.parts, c.states = nil, nil
}

// divides says which heads cannot be shared out; nil: all can.
func (c *groupStorage) divides() error {
	n := len(c.g.shards)
	for _, s := range c.layout.Layers {
		switch {
		case s.Kind == backend.StoreKeys && headsOn(s.KVHeads, n) == 0:
			return fmt.Errorf("%d kv heads over %d GPUs", s.KVHeads, n)
		case s.Kind == backend.StoreState && s.State.KeyHeads%n != 0:
			return fmt.Errorf("states of %d key heads over %d GPUs", s.State.KeyHeads, n)
		}
	}
	return nil
}

// on makes the parts, once it is known whether heads are cut.
func (c *groupStorage) on(split bool) error {
	switch {
	case c.parts != nil && c.split == split:
		c.used = true
		return nil
	case c.used:
		return errors.New("storage by heads is used whole, or the other way round")
	case split:
		if err := c.divides(); err != nil {
			return err
		}
	}
	kept, err := c.takeOut()
	if err != nil {
		return err
	}
	c.drop()
	c.make(split)
	c.used = true
	if err := c.putIn(kept); err != nil || c.reserved == 0 {
		return err
	}
	return c.Reserve(c.reserved)
}

// make makes empty parts.
func (c *groupStorage) make(split bool) {
	c.split = split
	l := c.layout
	if split {
		l.Layers = append([]backend.LayerStore(nil), l.Layers...)
		for i := range l.Layers {
			l.Layers[i] = shareOf(l.Layers[i], len(c.g.shards))
		}
	}
	if l.Recurrent() {
		c.states = c.g.newStates(c.layout, stateBytes(l))
	}
	for i, b := range c.g.shards {
		budget := &c.g.budget
		if i > 0 && !split {
			budget = &b.budget // a copy of what is counted
		}
		c.add(b.storageOf(paging.Sequence[driver.Ptr, driver.Ptr]{Table: paging.New(l, pages{b, int(l.Keys().PageBytes())}, budget)}))
	}
}

// add adds the next GPU's part.
func (c *groupStorage) add(p *storage) {
	p.group, p.rank = c.states, len(c.parts)
	c.parts = append(c.parts, p)
}

// begun makes parts where there are none.
func (c *groupStorage) begun() error {
	switch {
	case !c.open:
		return errors.New("cuda: the storage is closed")
	case c.parts == nil:
		c.make(c.divides() == nil)
	}
	return nil
}

// Reserve takes the pages of the first indices on all GPUs, and states, or none.
func (c *groupStorage) Reserve(tokens int) error {
	if err := c.begun(); err != nil {
		return err
	}
	if err := c.withStates().ReserveBy(tokens, c.reservePages); err != nil {
		if !c.used && c.reserved == 0 && c.imported == 0 {
			c.drop()
		}
		return err
	}
	c.reserved = max(c.reserved, tokens)
	return nil
}

func (c *groupStorage) reservePages(tokens int) error {
	for i, p := range c.parts {
		if err := p.Reserve(tokens); err != nil {
			return onGPU(i, err)
		}
	}
	return nil
}

// withStates is the storage as far as it is not each GPU's own.
func (c *groupStorage) withStates() paging.Sequence[driver.Ptr, []driver.Ptr] {
	return paging.Sequence[driver.Ptr, []driver.Ptr]{States: c.states}
}

// begin sees to the pages of all GPUs, and with states to these.
func (c *groupStorage) begin(base, rows int, states bool) error {
	return c.withStates().Begin(c, base, rows, states)
}

// Writable makes the pages of indices writable on all GPUs.
func (c *groupStorage) Writable(from, to int) error {
	for i, p := range c.parts {
		if err := p.Writable(from, to); err != nil {
			return onGPU(i, err)
		}
	}
	return nil
}

// Reach is how far pages and states go back, both.
func (c *groupStorage) Reach(n, base int) int {
	n = c.layout.Reach(n, base)
	switch {
	case !c.layout.Recurrent():
		return n
	case c.states == nil: // nothing was written
		return 0
	}
	return c.layout.Reach(c.states.Reach(n), base)
}

// Truncate holds the states behind n indices until the next forward.
func (c *groupStorage) Truncate(n int) { c.withStates().Truncate(n) }

// Mark keeps the states behind base indices.
func (c *groupStorage) Mark(base int) { c.withStates().Mark(base) }

// Fork forks each GPU's part.
func (c *groupStorage) Fork(n, slots int) (backend.Storage, error) {
	if err := c.begun(); err != nil {
		return nil, err
	}
	y := &groupStorage{g: c.g, layout: c.layout, split: c.split, used: c.used, open: true}
	y.layout.Slots, y.imported = slots, min(c.imported, (n+backend.PageTokens-1)/backend.PageTokens)
	if c.states != nil {
		var err error
		if y.states, err = c.states.Fork(y.layout, n); err != nil {
			return nil, fmt.Errorf("cuda: %w", err)
		}
	}
	for i, p := range c.parts {
		part, err := p.fork(n, slots)
		if err != nil {
			y.Close()
			return nil, onGPU(i, err)
		}
		y.add(part)
	}
	return y, nil
}

// Export copies a page, its heads from all GPUs.
func (c *groupStorage) Export(i int, dst []byte) error {
	return c.carry(i, dst, (*storage).Export, false)
}

// Import copies a page, its heads to all GPUs, or all of them to each.
func (c *groupStorage) Import(i int, src []byte) error {
	err := c.carry(i, src, (*storage).Import, true)
	if err == nil && !c.used {
		c.imported = max(c.imported, i+1)
	}
	return err
}

func (c *groupStorage) carry(page int, exported []byte, move func(*storage, int, []byte) error, in bool) error {
	if err := c.begun(); err != nil {
		return err
	}
	k := c.layout.Keys()
	if len(exported) != k.ExportedPage() {
		return fmt.Errorf("cuda: a page of %d bytes, want %d", len(exported), k.ExportedPage())
	}
	if !c.split || k.Layers == 0 { // pages without keys are empty
		parts := c.parts
		if !in {
			parts = parts[:1]
		}
		for i, p := range parts {
			if err := move(p, page, exported); err != nil {
				return onGPU(i, err)
			}
		}
		return nil
	}
	head := len(exported) / (k.Layers * k.KVHeads) // keys and values of one
	n, copies := headsOn(k.KVHeads, len(c.parts)), backend.HeadCopies(k.KVHeads, len(c.parts))
	part := make([]byte, k.Layers*n*head)
	for i, p := range c.parts {
		if !in && i%copies > 0 {
			continue // had from the GPU before
		}
		gather := func(in bool) {
			for layer := range k.Layers {
				whole := exported[(layer*k.KVHeads+i/copies*n)*head:][:n*head]
				if mine := part[layer*n*head:][:n*head]; in {
					copy(mine, whole)
				} else {
					copy(whole, mine)
				}
			}
		}
		if in {
			gather(true)
		}
		if err := move(p, page, part); err != nil {
			return onGPU(i, err)
		}
		if !in {
			gather(false)
		}
	}
	return nil
}
