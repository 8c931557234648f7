package backend

import (
	"errors"
	"fmt"
	"sync"
)

// Budget is how many bytes the sequences of a backend may take in all. It is safe for
// concurrent use. The zero Budget has no limit.
type Budget struct {
	mutex       sync.Mutex
	limit, used int64
}

// Limit sets how much may be taken from now on; 0: no limit. What is taken already
// stays.
func (b *Budget) Limit(bytes int64) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.limit = bytes
}

// Take takes n bytes, or returns a *MemoryError and takes nothing.
func (b *Budget) Take(n int64) error {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.limit > 0 && n > b.limit-b.used {
		return &MemoryError{Span: -1, Bytes: n, Free: max(0, b.limit-b.used), Limit: b.limit}
	}
	b.used += n
	return nil
}

// Give gives n bytes back.
func (b *Budget) Give(n int64) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.used -= n
}

// Used is how much is taken, and of how much; 0: no limit.
func (b *Budget) Used() (used, limit int64) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.used, b.limit
}

// MemoryError says that there was no memory for a sequence.
type MemoryError struct {
	// Span is the number of the span, in the forward's order, whose sequence lacked
	// it; -1 outside of a forward.
	Span int
	// Bytes were asked for; Free of Limit were left. Limit is 0 where the device had
	// no more: Err says what it said.
	Bytes, Free, Limit int64
	Err                error
}

func (e *MemoryError) Error() string {
	who := ""
	if e.Span >= 0 {
		who = fmt.Sprintf(" of sequence %d of the batch", e.Span)
	}
	if e.Limit > 0 {
		return fmt.Sprintf("no memory for keys and values%s: %d bytes are needed, %d of %d are left", who, e.Bytes, e.Free, e.Limit)
	}
	return fmt.Sprintf("no memory for keys and values%s: %d bytes: %v", who, e.Bytes, e.Err)
}

func (e *MemoryError) Unwrap() error { return e.Err }

// InSpan says in err, where it is a *MemoryError, which span's sequence lacked memory.
func InSpan(span int, err error) error {
	if e := (*MemoryError)(nil); errors.As(err, &e) {
		with := *e
		with.Span = span
		return &with
	}
	return err
}
