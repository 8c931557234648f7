package cuda

import (
	"errors"
	"fmt"

	"windrow/backend"
)

// groupStorage is a sequence's keys and values over the GPUs of a group: by heads, or
// whole on each, which the first forward decides. What is reserved before it is made as
// heads that can be shared out are.
type groupStorage struct {
	g        *Group
	layout   backend.Layout
	parts    []*storage // nil: nothing has been reserved or stored
	split    bool
	used     bool // by a forward
	reserved int
	open     bool
}

// NewStorage makes storage that takes its pages as they are written.
func (g *Group) NewStorage(l backend.Layout) (backend.Storage, error) {
	if l.Recurrent() {
		return nil, &backend.UnsupportedError{Backend: g.Name(), What: "states of recurrent layers on several GPUs"}
	}
	if err := checkLayout(l); err != nil {
		return nil, err
	}
	return &groupStorage{g: g, layout: l, open: true}, nil
}

// Budget is what all storage is taken from: by heads over all GPUs, whole ones once.
func (g *Group) Budget() *backend.Budget { return &g.budget }

func (c *groupStorage) Layout() backend.Layout { return c.layout }

func (c *groupStorage) Reach(n, base int) int { return c.layout.Reach(n, base) }

// Mark and Truncate do nothing: there are no states.
func (c *groupStorage) Mark(int)     {}
func (c *groupStorage) Truncate(int) {}

// Bytes is what it takes on all GPUs by heads, or on each of them.
func (c *groupStorage) Bytes() (n int64) {
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
	c.parts = nil
}

// divides reports whether heads can be shared out.
func (c *groupStorage) divides() bool {
	heads := c.layout.Keys().KVHeads
	return heads > 0 && heads%len(c.g.shards) == 0
}

// on makes the parts, once it is known whether heads are cut.
func (c *groupStorage) on(split bool) error {
	switch {
	case c.parts != nil && c.split == split:
		c.used = true
		return nil
	case c.used:
		return errors.New("storage by heads is used whole, or the other way round")
	case split && !c.divides():
		return fmt.Errorf("%d kv heads over %d GPUs", c.layout.Keys().KVHeads, len(c.g.shards))
	}
	c.drop()
	if err := c.make(split); err != nil {
		return err
	}
	c.used = true
	return c.Reserve(c.reserved)
}

// make makes empty parts.
func (c *groupStorage) make(split bool) error {
	c.split = split
	l := c.layout
	if split {
		l.Layers = append([]backend.LayerStore(nil), l.Layers...)
		for i := range l.Layers {
			l.Layers[i].KVHeads /= len(c.g.shards)
		}
	}
	for i, b := range c.g.shards {
		budget := &c.g.budget
		if i > 0 && !split {
			budget = &b.budget // a copy of what is counted
		}
		p, err := b.newStorage(l, budget)
		if err != nil {
			c.drop()
			return err
		}
		c.parts = append(c.parts, p)
	}
	return nil
}

// begun makes parts where there are none.
func (c *groupStorage) begun() error {
	switch {
	case !c.open:
		return errors.New("cuda: the storage is closed")
	case c.parts == nil:
		return c.make(c.divides())
	}
	return nil
}

// Reserve takes the pages of the first indices on all GPUs, or none.
func (c *groupStorage) Reserve(tokens int) error {
	if err := c.begun(); err != nil {
		return err
	}
	for i, p := range c.parts {
		if err := p.Reserve(tokens); err != nil {
			if !c.used && c.reserved == 0 {
				c.drop()
			}
			return onGPU(i, err)
		}
	}
	c.reserved = max(c.reserved, tokens)
	return nil
}

// Fork forks each GPU's part.
func (c *groupStorage) Fork(n, slots int) (backend.Storage, error) {
	if err := c.begun(); err != nil {
		return nil, err
	}
	y := &groupStorage{g: c.g, layout: c.layout, split: c.split, used: c.used, open: true}
	y.layout.Slots = slots
	for i, p := range c.parts {
		part, err := p.fork(n, slots)
		if err != nil {
			y.Close()
			return nil, onGPU(i, err)
		}
		y.parts = append(y.parts, part)
	}
	return y, nil
}

// Export copies a page, its heads from all GPUs.
func (c *groupStorage) Export(i int, dst []byte) error {
	return c.carry(i, dst, (*storage).Export, false)
}

// Import copies a page, its heads to all GPUs, or all of them to each.
func (c *groupStorage) Import(i int, src []byte) error {
	return c.carry(i, src, (*storage).Import, true)
}

func (c *groupStorage) carry(page int, exported []byte, move func(*storage, int, []byte) error, in bool) error {
	if err := c.begun(); err != nil {
		return err
	}
	k := c.layout.Keys()
	if len(exported) != k.ExportedPage() {
		return fmt.Errorf("cuda: a page of %d bytes, want %d", len(exported), k.ExportedPage())
	}
	if !c.split {
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
	n := k.KVHeads / len(c.parts)
	part := make([]byte, len(exported)/len(c.parts))
	for i, p := range c.parts {
		gather := func(in bool) {
			for layer := range k.Layers {
				whole := exported[(layer*k.KVHeads+i*n)*head:][:n*head]
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
