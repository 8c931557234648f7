package engine

import "sync"

// callbacks are an Options' functions until Open returns. An Open that was
// cancelled goes on for a while; its caller must not hear of it.
type callbacks struct {
	mutex    sync.Mutex
	over     bool
	note     func(string)
	progress func(done, total int64)
}

func (c *callbacks) end() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.over = true
}

func (c *callbacks) sayNote(line string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if !c.over && c.note != nil {
		c.note(line)
	}
}

func (c *callbacks) sayProgress(done, total int64) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if !c.over && c.progress != nil {
		c.progress(done, total)
	}
}
