package jinja

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Bounds of a template's source, kept when it is compiled.
const (
	maxSource = 256 << 10 // bytes; the largest templates in use have some 30 KB
	maxBlocks = 100       // statements within each other
	maxNest   = 250       // expressions within each other, a chain a.b.c counting each link
)

// Bounds that no rendering needs to choose.
const (
	maxFrames = 2500    // evaluations within each other: what keeps Go's stack small
	maxCalls  = 150     // macros, recursive loops and call blocks within each other
	maxDepth  = 150     // lists and dictionaries within each other, when they are printed, compared or written as JSON
	maxBits   = 1 << 15 // of an integer
	maxDigits = 4300    // of an integer in decimal, as in Python
	maxRange  = 100_000 // numbers of one range(), as in Jinja2's sandbox
)

// Limits bound one rendering. A field that is 0 takes its default.
type Limits struct {
	// Time is the longest that a rendering may take; by default 2 seconds.
	Time time.Duration
	// Steps is how many expressions, items and (by blocks) bytes may be looked
	// at; by default 10 million, some hundreds of milliseconds.
	Steps int64
	// Bytes is what may be allocated in all, whether it is still in use or
	// not; by default 48 MiB.
	Bytes int64
	// Output is the size of the rendered text; by default 16 MiB.
	Output int64
}

func (l Limits) withDefaults() Limits {
	if l.Time <= 0 {
		l.Time = 2 * time.Second
	}
	if l.Steps <= 0 {
		l.Steps = 10_000_000
	}
	if l.Bytes <= 0 {
		l.Bytes = 48 << 20
	}
	if l.Output <= 0 {
		l.Output = 16 << 20
	}
	return l
}

// budget counts what one rendering has used.
type budget struct {
	ctx      context.Context
	limits   Limits
	deadline time.Time
	steps    int64
	looked   int64 // steps when the clock was last looked at
	bytes    int64
	frames   int
	calls    int
}

// failure is what evaluation panics with; Compile and Render return it.
type failure struct {
	err  error
	line int
}

// fail ends the compilation or rendering under way.
func fail(format string, args ...any) {
	panic(&failure{err: fmt.Errorf(format, args...)})
}

// step charges n steps.
func (b *budget) step(n int64) {
	b.steps += n
	if b.steps-b.looked >= 512 {
		b.look()
	}
}

// look compares what was used with the clock, the context and the limit.
func (b *budget) look() {
	b.looked = b.steps
	if b.steps > b.limits.Steps || b.steps < 0 {
		fail("rendering took more than %d steps", b.limits.Steps)
	}
	if err := b.ctx.Err(); err != nil {
		panic(&failure{err: err})
	}
	if time.Now().After(b.deadline) {
		fail("rendering took more than %v", b.limits.Time)
	}
}

// alloc charges n bytes that are about to be allocated.
func (b *budget) alloc(n int64) {
	if n < 0 || n > b.limits.Bytes-b.bytes {
		fail("rendering needs more than %d bytes of memory", b.limits.Bytes)
	}
	b.bytes += n
	b.step(1 + n>>8)
}

// times charges n allocations of size bytes each.
func (b *budget) times(n, size int64) {
	if n > 0 && size > 0 && n > b.limits.Bytes/size {
		fail("rendering needs more than %d bytes of memory", b.limits.Bytes)
	}
	b.alloc(max(n, 0) * max(size, 0))
}

// scan charges reading n bytes.
func (b *budget) scan(n int) { b.step(1 + int64(n)>>7) }

// text charges a string of n bytes.
func (b *budget) text(n int) { b.alloc(int64(n) + 16) }

// enter goes one evaluation deeper.
func (b *budget) enter() {
	b.frames++
	if b.frames > maxFrames {
		fail("evaluation is nested more than %d deep", maxFrames)
	}
}

// recoverTo turns a failure into the error of Compile or Render.
func recoverTo(err *error, line func() int) {
	switch r := recover().(type) {
	case nil:
	case *failure:
		at := r.line
		if at == 0 {
			at = line()
		}
		*err = describe(r.err, at)
	default:
		*err = describe(fmt.Errorf("internal error: %v", r), line())
	}
}

// describe makes one line of an error, of at most 300 bytes and without
// control characters, with the line of the template where it arose.
func describe(err error, line int) error {
	var raised *RaisedError
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &raised) {
		return fmt.Errorf("line %d: %w", line, err)
	}
	return fmt.Errorf("line %d: %s", line, oneLine(err.Error()))
}

// oneLine replaces what would move a terminal's cursor and shortens.
func oneLine(s string) string {
	var b strings.Builder
	space := false
	for _, r := range s {
		switch {
		case r == ' ' || r == '\n' || r == '\t' || r == '\r':
			space = b.Len() > 0
			continue
		case !isPrintable(r):
			r = '\uFFFD'
		}
		if space {
			b.WriteByte(' ')
			space = false
		}
		b.WriteRune(r)
		if b.Len() > 300 {
			b.WriteString("…")
			break
		}
	}
	return b.String()
}
