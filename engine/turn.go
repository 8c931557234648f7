package engine

import (
	"context"

	"windrow/architecture"
	"windrow/backend"
	"windrow/model"
)

// turn passes a device from goroutine to goroutine: a backend may be used by one
// at a time. Who waits longest is next.
type turn struct {
	token  chan struct{} // holds one while nobody has the device
	closed bool          // read and written by who has the turn
}

func newTurn() turn {
	t := turn{token: make(chan struct{}, 1)}
	t.token <- struct{}{}
	return t
}

// take waits for the turn as long as ctx lasts; give must follow. After an error
// the caller does not have it.
func (t *turn) take(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-t.token:
	case <-ctx.Done():
		return ctx.Err()
	}
	if t.closed {
		t.give()
		return ErrClosed
	}
	return nil
}

func (t *turn) give() { t.token <- struct{}{} }

// Forward runs one batch when it is its turn, as model.Forward does: it makes the
// Engine a decoder.Engine. The batch's caches must be NewCache's. The results are
// the caller's to keep.
func (e *Engine) Forward(ctx context.Context, b *model.Batch) ([]model.Result, error) {
	if err := e.device.take(ctx); err != nil {
		return nil, err
	}
	defer e.device.give()
	return e.model.Forward(ctx, b)
}

// NewCache makes an empty cache for one sequence of up to capacity tokens, of
// which one forward adds maxRows at most. FreeCache must be called in the end.
func (e *Engine) NewCache(ctx context.Context, capacity, maxRows int) (*model.Cache, error) {
	if err := e.device.take(ctx); err != nil {
		return nil, err
	}
	defer e.device.give()
	return e.newCache(capacity, maxRows)
}

// ForkCache makes a cache as NewCache does that begins with the first n of
// another, whose memory it shares (model.Cache's Fork). FreeCache must be called in the
// end.
func (e *Engine) ForkCache(ctx context.Context, c *model.Cache, n, capacity, maxRows int) (*model.Cache, error) {
	if err := e.device.take(ctx); err != nil {
		return nil, err
	}
	defer e.device.give()
	return c.Fork(n, capacity, maxRows)
}

// ReserveCache makes room for n tokens, as model.Cache's Reserve does.
func (e *Engine) ReserveCache(ctx context.Context, c *model.Cache, n int) error {
	if err := e.device.take(ctx); err != nil {
		return err
	}
	defer e.device.give()
	return c.Reserve(n)
}

// ExportCache copies a full page of a cache, as model.Cache's Export does: between two
// forwards, where some run.
func (e *Engine) ExportCache(ctx context.Context, c *model.Cache, page int, dst []byte) error {
	if err := e.device.take(ctx); err != nil {
		return err
	}
	defer e.device.give()
	return c.Export(page, dst)
}

// ImportCache appends pages to a cache, as model.Cache's Import does: between two
// forwards, where some run.
func (e *Engine) ImportCache(ctx context.Context, c *model.Cache, pages ...[]byte) error {
	if err := e.device.take(ctx); err != nil {
		return err
	}
	defer e.device.give()
	for _, page := range pages {
		if err := c.Import(page); err != nil {
			return err
		}
	}
	return nil
}

// RoomCache is the memory of up to n of the pages that ImportCache would append next, as
// model.Cache's Room is.
func (e *Engine) RoomCache(ctx context.Context, c *model.Cache, n int) ([][]byte, error) {
	if err := e.device.take(ctx); err != nil {
		return nil, err
	}
	defer e.device.give()
	return c.Room(n)
}

// KeepsStates reports whether the model has states besides keys and values, and whether
// all that a cache has can be copied out of it, as sessions want it.
func (e *Engine) KeepsStates(ctx context.Context) (states, copies bool, err error) {
	c, err := e.NewCache(ctx, 1, 1)
	if err != nil {
		return false, false, err
	}
	defer e.FreeCache(c)
	return c.Recurrent(), c.Copies(), nil
}

// ExportStates copies states of a cache, as model.Cache's ExportStates does: between two
// forwards, where some run.
func (e *Engine) ExportStates(ctx context.Context, c *model.Cache, p backend.Place, dst []byte) error {
	if err := e.device.take(ctx); err != nil {
		return err
	}
	defer e.device.give()
	return c.ExportStates(p, dst)
}

// ImportStates ends an import of pages, as model.Cache's ImportStates does: between two
// forwards, where some run.
func (e *Engine) ImportStates(ctx context.Context, c *model.Cache, p backend.Place, end int, src []byte) error {
	if err := e.device.take(ctx); err != nil {
		return err
	}
	defer e.device.give()
	return c.ImportStates(p, end, src)
}

// KVPageBytes is what a page of 64 tokens' keys and values takes of the Budget.
func (e *Engine) KVPageBytes() int64 {
	return backend.PageTokens * e.model.KVBytesPerToken(e.options.KV)
}

// KVExportedPage is the size of the exported page, which has each KV head once.
func (e *Engine) KVExportedPage() int { return int(e.KVPageBytes()) / e.model.KVCopies() }

// KVRoom is how many bytes keys and values may well take on this device: most of what a
// GPU has free, a quarter of the host's memory. 0: nobody knows.
func (e *Engine) KVRoom(ctx context.Context) int64 {
	if e.device.take(ctx) != nil {
		return 0
	}
	defer e.device.give()
	return e.device.room()
}

// Budget is what all keys and values are taken from.
func (e *Engine) Budget() *backend.Budget { return e.device.backend.Budget() }

// FreeCache frees a cache that no forward uses any more. After Close it does
// nothing: the storage went with the device.
func (e *Engine) FreeCache(c *model.Cache) {
	if e.device.take(context.Background()) != nil {
		return
	}
	defer e.device.give()
	c.Close()
}

// newCache is NewCache for who has the turn.
func (e *Engine) newCache(capacity, maxRows int) (*model.Cache, error) {
	o := model.CacheOptions{
		Capacity: capacity, MaxRows: maxRows, DType: e.options.KV,
		Window: e.options.KVWindow, Keep: e.options.KVKeep,
		StepRows: architecture.StepRows(e.vocabulary(e.Config()).MaskID),
	}
	return e.model.NewCache(o)
}
