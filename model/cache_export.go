package model

import (
	"errors"
	"fmt"

	"windrow/backend"
)

// ErrStates is the export or import of what a cache keeps where some layers have states
// that the backend cannot copy: their tokens have to be computed.
var ErrStates = errors.New("the states of this model's recurrent layers cannot be copied on this device")

// PageBytes is the size of an exported page of backend.PageTokens tokens.
func (c *Cache) PageBytes() int { return c.storage.Layout().Keys().ExportedPage() }

// Export copies the keys and values of a full page of permanent tokens, in the order
// that backend.Keys.ExportedPage gives: not the states that some layers may have
// (ExportStates). Where there are some, a last page that is not full can be had, too: its
// other rows are 0.
func (c *Cache) Export(page int, dst []byte) error {
	full := c.base / backend.PageTokens
	part := c.Recurrent() && page == full && c.base%backend.PageTokens > 0
	if page < 0 || page >= full && !part {
		return fmt.Errorf("export page %d: %d tokens are permanent", page, c.base)
	}
	if err := c.storage.Export(page, dst); err != nil || !part {
		return err
	}
	// What others, or nobody, left in the page is no one's business.
	row := c.storage.Layout().Keys().RowBytes()
	for tile := dst; len(tile) > 0; tile = tile[backend.PageTokens*row:] {
		clear(tile[c.base%backend.PageTokens*row : backend.PageTokens*row])
	}
	return nil
}

// Import appends a page that a cache of the same model and element type has exported:
// the cache must end with a full page, and the page's tokens are permanent then. Where
// layers have states the cache must have been empty, and tokens are permanent when these
// are imported, too (ImportStates).
func (c *Cache) Import(src []byte) error {
	at := c.base
	if c.Recurrent() {
		if !c.Copies() {
			return ErrStates
		}
		if at > 0 {
			return fmt.Errorf("import a page behind %d tokens: want none before states", at)
		}
		at = c.imported
	} else if at+backend.PageTokens > c.capacity {
		return fmt.Errorf("import a page behind %d tokens: the cache holds %d", at, c.capacity)
	}
	if at%backend.PageTokens != 0 || at >= c.capacity {
		return fmt.Errorf("import a page behind %d tokens of %d: want whole pages, and room", at, c.capacity)
	}
	if err := c.storage.Import(at/backend.PageTokens, src); err != nil {
		return err
	}
	if at += backend.PageTokens; c.Recurrent() {
		c.imported = at
	} else {
		c.base = at
	}
	c.pending = 0
	return nil
}

// Room is the memory of up to n of the pages that Import would append next, for who fills
// them and has them imported (backend.RoomStorage); none where pages do not lie in the
// host's memory, or may not be imported.
func (c *Cache) Room(n int) (list [][]byte, err error) {
	s, ok := c.storage.(backend.RoomStorage)
	at := max(c.base, c.imported)
	if !ok || !c.Copies() || at%backend.PageTokens != 0 || c.Recurrent() && c.base > 0 {
		return nil, nil
	}
	end := c.capacity / backend.PageTokens
	if c.Recurrent() { // the last one may be of fewer tokens
		end = (c.capacity + backend.PageTokens - 1) / backend.PageTokens
	}
	for i := at / backend.PageTokens; i < end && len(list) < n; i++ {
		page, err := s.Room(i)
		if err != nil {
			return nil, err
		}
		list = append(list, page)
	}
	return list, nil
}

// Filled is to be called for each page that Room gave and that was filled, before its
// import, maybe beside forwards.
func (c *Cache) Filled(page []byte) { c.storage.(backend.RoomStorage).Filled(page) }

// Copies reports whether all that the cache keeps can be exported: states cannot where
// the backend does not copy them.
func (c *Cache) Copies() bool {
	_, ok := c.storage.(backend.StateStorage)
	return ok || !c.Recurrent()
}

// Places lists the states that can be exported, in rising order: none where no layer has
// some, or where the backend cannot copy them.
func (c *Cache) Places() []backend.Place {
	if s, ok := c.storage.(backend.StateStorage); ok && c.Recurrent() {
		return s.Places(c.base)
	}
	return nil
}

// StatesBytes is the size of the exported states of a place.
func (c *Cache) StatesBytes(p backend.Place) int { return int(c.storage.Layout().ExportedStates(p)) }

// ExportStates copies the states of one of Places, in the form that
// backend.Layout.ExportedStates describes. It returns backend.ErrNoPlace where they went
// since.
func (c *Cache) ExportStates(p backend.Place, dst []byte) error {
	if s, ok := c.storage.(backend.StateStorage); ok && c.Recurrent() {
		return s.ExportStates(p, dst)
	}
	return ErrStates
}

// ImportStates ends an import of pages with the states that a cache of the same model has
// exported: end tokens are permanent then, of those that the place goes back to.
func (c *Cache) ImportStates(p backend.Place, end int, src []byte) error {
	s, ok := c.storage.(backend.StateStorage)
	if !ok || !c.Recurrent() {
		return ErrStates
	}
	if c.base > 0 || end < max(1, p.From) || end > p.End || end > c.imported || end > c.capacity {
		return fmt.Errorf("import states of tokens %d to %d behind %d: there are pages of %d", p.From, p.End, end, c.imported)
	}
	if err := s.ImportStates(p, src); err != nil {
		return err
	}
	s.Truncate(end)
	c.base, c.imported, c.pending = end, 0, 0
	return nil
}
