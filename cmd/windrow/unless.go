package main

import "context"

// unlessCancelled runs work that may wait without end: for a file system that
// does not answer, or for somebody to type. Where ctx ends first, so does the
// wait, with its error; work goes on unheeded until the program ends, which is
// soon, and which frees what work still opens.
func unlessCancelled[T any](ctx context.Context, work func() (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		value, err := work()
		done <- outcome{value, err}
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
