// Package unless waits for work, unless a context ends first.
package unless

import "context"

// Cancelled runs work that may wait without end: for a file system that does
// not answer, or for somebody to type. Where ctx ends first, so does the wait,
// with ctx's error; when work ends later, discard, where it is not nil, frees
// what it returned without an error.
func Cancelled[T any](ctx context.Context, work func() (T, error), discard func(T)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	done, left := make(chan outcome), make(chan struct{})
	go func() {
		value, err := work()
		select {
		case done <- outcome{value, err}:
		case <-left:
			if err == nil && discard != nil {
				discard(value)
			}
		}
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
		close(left)
		return none, ctx.Err()
	}
}
