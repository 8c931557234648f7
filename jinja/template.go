package jinja

import (
	"context"
	"fmt"
	"time"
)

// Template is a compiled template. It may be rendered by several goroutines at
// once.
type Template struct {
	body  []stmt
	scope *layout
}

// Compile reads a template of at most 256 KiB. The error is one line with the
// template's line, and says what is wrong or not supported. It takes time in
// proportion to the source.
func Compile(source string) (t *Template, err error) {
	defer recoverTo(&err, func() int { return 1 })
	if len(source) > maxSource {
		return nil, fmt.Errorf("the template has %d bytes; at most %d are supported", len(source), maxSource)
	}
	t = &Template{body: parse(validText(source))}
	t.scope = resolve(t.body)
	return t, nil
}

// Render runs the template with variables as [FromGo] takes them. It ends with
// an error of one line, which names the template's line, when the template
// fails, when it goes over a limit, or when ctx is done (then errors.Is finds
// ctx's error). What the template itself refused with raise_exception is a
// [RaisedError].
func (t *Template) Render(ctx context.Context, variables map[string]any, limits Limits) (text string, err error) {
	ev := &evaluator{now: time.Now}
	return t.render(ctx, ev, variables, limits)
}

func (t *Template) render(ctx context.Context, ev *evaluator, variables map[string]any, limits Limits) (text string, err error) {
	defer recoverTo(&err, func() int { return ev.line })
	limits = limits.withDefaults()
	ev.budget = budget{ctx: ctx, limits: limits, deadline: time.Now().Add(limits.Time)}
	ev.look()
	ev.vars = &dict{}
	for name, v := range variables {
		ev.vars.set(ev, validText(name), ev.fromGo(v, 0))
	}
	ev.out = &buffer{max: limits.Output}
	ev.run(t.body, ev.open(t.scope, nil))
	return string(ev.out.text), nil
}
