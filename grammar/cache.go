package grammar

// A cache keeps what was used last, in two halves: what is used moves to the
// new one, and when that is full the old one is dropped.
type cache struct {
	young, old map[entryKey]*entry
	size       int // of the young, bytes
}

// entryKey is a set of nodes, and the frame it is in where that matters.
type entryKey struct {
	l  *local
	at *frame
}

// masks is how many bytes of entries a constraint keeps.
const masks = 16 << 20

func (c *cache) get(key entryKey) *entry {
	if n := c.young[key]; n != nil {
		return n
	}
	n := c.old[key]
	if n != nil {
		c.put(key, n)
	}
	return n
}

func (c *cache) put(key entryKey, n *entry) {
	if c.size > masks/2 {
		c.old, c.young, c.size = c.young, nil, 0
	}
	if c.young == nil {
		c.young = make(map[entryKey]*entry)
	}
	c.young[key] = n
	c.size += n.size()
}

func (c *cache) clear() { *c = cache{} }
