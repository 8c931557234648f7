package backendtest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"windrow/backend"
)

// refusePrograms compiles what cannot be run: an error of one line, and none runs.
func refusePrograms(t *testing.T, b backend.Backend) {
	r := seeded(11)
	table := matrix(t, b, random(r, "table", backend.F32, 1, 9, 6))
	square := backend.Linear{Weight: matrix(t, b, random(r, "w", backend.F32, 1, 4, 6))}
	norm, short := vector(t, b, random(r, "n", backend.F32, 1, 6)), vector(t, b, random(r, "s", backend.F32, 1, 4))
	_, turn := rotation(t, b, 2, 10, someAngles)
	heads := backend.Heads{KVHeads: 1, HeadDim: 4, Rotation: turn}
	for name, list := range map[string]func(p *listed, x backend.Buffer){
		"nothing":              func(p *listed, x backend.Buffer) { p.Ops = nil },
		"no embedding":         func(p *listed, x backend.Buffer) { p.Ops = p.Ops[:0]; p.RMSNorm(x, x, norm, 1e-6) },
		"a foreign buffer":     func(p *listed, x backend.Buffer) { p.RMSNorm(x, 17, norm, 1e-6) },
		"a buffer of no width": func(p *listed, x backend.Buffer) { p.Buffer(0) },
		"an embedding's width": func(p *listed, x backend.Buffer) { p.Embed(p.Buffer(5), table) },
		"a norm's length":      func(p *listed, x backend.Buffer) { p.RMSNorm(x, x, short, 1e-6) },
		"a projection's width": func(p *listed, x backend.Buffer) {
			p.Project([]backend.Buffer{p.Buffer(5)}, x, []backend.Linear{square})
		},
		"a projection into itself": func(p *listed, x backend.Buffer) { p.ProjectAdd(x, x, backend.Linear{Weight: table}) },
		"a bias's length": func(p *listed, x backend.Buffer) {
			p.Project([]backend.Buffer{p.Buffer(4)}, x, []backend.Linear{{Weight: square.Weight, Bias: norm}})
		},
		"no weights": func(p *listed, x backend.Buffer) { p.Project(nil, x, nil) },
		"one target twice": func(p *listed, x backend.Buffer) {
			y := p.Buffer(4)
			p.Project([]backend.Buffer{y, y}, x, []backend.Linear{square, square})
		},
		"attention without keys": func(p *listed, x backend.Buffer) { p.Attend(p.Buffer(6), x, 0, 1) },
		"heads that do not divide": func(p *listed, x backend.Buffer) {
			p.RotateStore(x, p.Buffer(4), p.Buffer(4), heads, 0)
		},
		"no rotation": func(p *listed, x backend.Buffer) {
			p.RotateStore(p.Buffer(8), p.Buffer(4), p.Buffer(4), backend.Heads{KVHeads: 1, HeadDim: 4}, 0)
		},
		"keys stored twice": func(p *listed, x backend.Buffer) {
			q, k, v := p.Buffer(8), p.Buffer(4), p.Buffer(4)
			p.RotateStore(q, k, v, heads, 0)
			p.RotateStore(q, k, v, heads, 0)
		},
		"all ids barred":         func(p *listed, x backend.Buffer) { p.Head(x, norm, 1e-6, table, backend.Bars{Limit: 1}) },
		"more after the head":    func(p *listed, x backend.Buffer) { p.Head(x, norm, 1e-6, table, backend.NoBars); p.Tap(x) },
		"a head's width":         func(p *listed, x backend.Buffer) { p.Head(p.Buffer(4), short, 1e-6, table, backend.NoBars) },
		"an operation it lacks":  func(p *listed, x backend.Buffer) { p.Ops = append(p.Ops, backend.Op{Kind: 200}) },
		"a weight of a stranger": func(p *listed, x backend.Buffer) { p.Embed(x, stranger{}) },
	} {
		p := begin(t, b)
		x := p.Buffer(6)
		p.Embed(x, table)
		list(p, x)
		f, err := b.Compile(p.Program)
		if err == nil {
			f.Close()
			t.Errorf("%s: want an error", name)
			continue
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %q is not one line", name, err)
		}
		if lacks := (*backend.UnsupportedError)(nil); errors.As(err, &lacks) != (name == "an operation it lacks") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// stranger is a matrix of another backend, [9, 6].
type stranger struct{}

func (stranger) Out() int { return 9 }
func (stranger) In() int  { return 6 }

// refuseValues starts forwards that cannot be: nothing has begun then, and a good one
// runs after each.
func refuseValues(t *testing.T, b backend.Backend) {
	m := newSmall(t, b, backend.NoBars)
	f := m.list().compile()
	defer f.Close()
	kv, closed := m.storage(t), m.storage(t)
	closed.Close()
	wide, err := b.NewStorage(backend.KeysLayout(1, 2, m.layout.Keys().HeadDim, backend.KVBF16, 40))
	if err != nil {
		t.Fatal(err)
	}
	defer wide.Close()
	last := backend.Wanted{Row: 1}
	good := func() backend.Values { return m.values(kv, 0, 2, last) }
	for name, spoil := range map[string]func(v *backend.Values){
		"no rows":                func(v *backend.Values) { *v = backend.Values{} },
		"a position too few":     func(v *backend.Values) { v.Positions = v.Positions[:1] },
		"a token past the table": func(v *backend.Values) { v.Tokens[1] = smallVocabulary },
		"a negative token":       func(v *backend.Values) { v.Tokens[0] = -1 },
		"a position too far":     func(v *backend.Values) { v.Positions[0] = 500 },
		"a negative position":    func(v *backend.Values) { v.Positions[1] = -1 },
		"no spans":               func(v *backend.Values) { v.Spans = nil },
		"spans of one row":       func(v *backend.Values) { v.Spans[0].Rows = 1 },
		"a span past its slots":  func(v *backend.Values) { v.Spans[0].Base = m.layout.Slots - 1 },
		"no storage":             func(v *backend.Values) { v.Spans[0].Storage = nil },
		"closed storage":         func(v *backend.Values) { v.Spans[0].Storage = closed },
		"storage of other heads": func(v *backend.Values) { v.Spans[0].Storage = wide },
		"a wanted row too far":   func(v *backend.Values) { v.Want[0].Row = 2 },
		"wanted rows in disorder": func(v *backend.Values) {
			v.Want = []backend.Wanted{{Row: 1}, {Row: 0}}
		},
		"no id allowed":        func(v *backend.Values) { v.Want[0].Allowed = backend.NewIDSet(smallVocabulary) },
		"less than no results": func(v *backend.Values) { v.Want[0].TopK = -1 },
	} {
		v := good()
		spoil(&v)
		if err := f.Start(context.Background(), v); err == nil {
			t.Errorf("%s: want an error", name)
		}
		if _, err := f.Wait(); err == nil {
			t.Errorf("%s: results of a forward that was not begun", name)
		}
		run(t, f, good())
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := f.Start(ctx, good()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before it began: %v", err)
	}
	run(t, f, good())
}
