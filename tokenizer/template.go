package tokenizer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"windrow/jinja"
)

// chatTemplate is a template's source, compiled at its first use: a third of a
// millisecond that a start without a chat does not pay.
type chatTemplate struct {
	source   string
	time     time.Duration // the longest rendering; 0: jinja's bound
	once     sync.Once
	compiled *jinja.Template
	err      error
}

// render runs the template under the bounds of package jinja: what a template
// may allocate and do grows with what it is given, since each message is copied
// some times on its way, and published templates for pictures (Llama 3.2,
// Idefics 3) go over a text letter by letter, as if it were parts. A compilation
// is short and is not ended by ctx.
func (t *chatTemplate) render(ctx context.Context, variables map[string]any, given int) (string, error) {
	t.once.Do(func() { t.compiled, t.err = jinja.Compile(t.source) })
	if t.err != nil {
		return "", fmt.Errorf("chat template: %w", t.err)
	}
	const bytes, output, steps = 48 << 20, 16 << 20, 10_000_000
	limits := jinja.Limits{Time: t.time, Bytes: bytes + 160*int64(given), Output: output + 2*int64(given), Steps: steps + 64*int64(given)}
	text, err := t.compiled.Render(ctx, variables, limits)
	if err != nil {
		return "", fmt.Errorf("chat template: %w", err)
	}
	return text, nil
}
