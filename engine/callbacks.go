package engine

import "sync"

// callbacks are an Options' functions. An Open that was cancelled goes on for a while; its
// caller must not hear of it, nor, after any, of progress.
type callbacks struct {
	mutex    sync.Mutex
	over     bool
	note     func(string)
	progress func(done, total int64)
}

// end is called when Open returns, with what that does.
func (c *callbacks) end(err error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.over = true; err != nil {
		c.note = nil
	}
}

func (c *callbacks) sayNote(line string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.note != nil {
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
