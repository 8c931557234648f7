package tokenizer

import (
	"context"
	"fmt"
	"sync"

	"windrow/jinja"
)

// chatTemplate is a template's source, compiled at its first use: a third of a
// millisecond that a start without a chat does not pay.
type chatTemplate struct {
	source   string
	once     sync.Once
	compiled *jinja.Template
	err      error
}

// render runs the template under the bounds of package jinja: what a template
// may allocate grows with what it is given, since each message is copied some
// times on its way.
func (t *chatTemplate) render(variables map[string]any, given int) (string, error) {
	t.once.Do(func() { t.compiled, t.err = jinja.Compile(t.source) })
	if t.err != nil {
		return "", fmt.Errorf("chat template: %w", t.err)
	}
	const bytes, output, times = 48 << 20, 16 << 20, 32
	limits := jinja.Limits{Bytes: bytes + times*int64(given), Output: output + 2*int64(given)}
	text, err := t.compiled.Render(context.Background(), variables, limits)
	if err != nil {
		return "", fmt.Errorf("chat template: %w", err)
	}
	return text, nil
}
