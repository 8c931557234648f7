package backendtest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"windrow/backend"
)

// testInput: rows that are given, rows put behind each other, and hidden states in
// results: what a head for drafts takes. A backend without them refuses in one line.
func testInput(t *testing.T, b backend.Backend) {
	const width, ids = 40, 30
	r := seeded(31)
	table := random(r, "table", backend.F32, 1, ids, width)
	weight, norm := random(r, "w", backend.F32, .2, width, 2*width), random(r, "norm", backend.F32, 1, width)
	list := func() *listed {
		p := begin(t, b)
		x, given, both := p.Buffer(width), p.Buffer(width), p.Buffer(2*width)
		p.Embed(x, matrix(t, b, table))
		p.Input(given)
		p.Join(both, given, x)
		p.Tap(both)
		p.Project([]backend.Buffer{x}, both, []backend.Linear{{Weight: matrix(t, b, weight)}})
		p.TapNormed(x, p.Buffer(width), vector(t, b, norm), 1e-6)
		p.Head(x, vector(t, b, norm), 1e-6, matrix(t, b, table), backend.NoBars)
		return p
	}
	f, err := b.Compile(list().Program)
	if lacks := (*backend.UnsupportedError)(nil); errors.As(err, &lacks) {
		if b.Features().HiddenRows || strings.Contains(err.Error(), "\n") {
			t.Errorf("hidden rows %t, error %q", b.Features().HiddenRows, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, rows := range []int{1, 2, 9, 33} {
		v := rowsOf(rows)
		v.Input = make([]float32, rows*width)
		for i := range v.Tokens {
			v.Tokens[i] = int32(i * 7 % ids)
		}
		for i := range v.Input {
			v.Input[i] = float32(r.NormFloat64())
		}
		for i := range rows {
			w := backend.Wanted{Row: int32(i)}
			switch i % 4 {
			case 0:
				w.Hidden = true
			case 1:
				w.Hidden, w.Bare = true, true
			case 2:
				w.TopK, w.Logits = 3, true
			case 3:
				continue
			}
			v.Want = append(v.Want, w)
		}
		results, taps := tapped(t, f, v)
		for i := range rows {
			row := taps[0][i*2*width : (i+1)*2*width]
			equalBits(t, "the rows that are given", row[:width], v.Input[i*width:(i+1)*width])
			for k, x := range row[width:] {
				if want := table.values[int(v.Tokens[i])*width+k]; x != float32(want) {
					t.Fatalf("row %d: %v behind it, want %v", i, x, want)
				}
			}
		}
		for i, w := range v.Want {
			got := results[i]
			if !w.Hidden {
				if got.Hidden != nil || got.Argmax < 0 || len(got.Top) != 3 {
					t.Errorf("row %d: %+v, want no hidden state", w.Row, got)
				}
				continue
			}
			equalBits(t, "the hidden state", got.Hidden, taps[1][int(w.Row)*width:int(w.Row+1)*width])
			if w.Bare != (got.Argmax < 0) || got.Logits != nil || got.Top != nil {
				t.Errorf("row %d: %+v of a bare row: %t", w.Row, got, w.Bare)
			}
		}
		// What is bare changes nothing of the others.
		plain := slices.DeleteFunc(slices.Clone(v.Want), func(w backend.Wanted) bool { return w.Bare })
		alone := v
		alone.Want = plain
		for i, got := range run(t, f, alone) {
			k := slices.IndexFunc(v.Want, func(w backend.Wanted) bool { return w.Row == plain[i].Row })
			if want := results[k]; got.Argmax != want.Argmax || got.Entropy != want.Entropy || got.LogSumExp != want.LogSumExp {
				t.Errorf("row %d: %+v, beside bare rows %+v", plain[i].Row, got, want)
			}
		}
	}
	for what, change := range map[string]func(v *backend.Values){
		"no input":            func(v *backend.Values) { v.Input = nil },
		"too little input":    func(v *backend.Values) { v.Input = v.Input[:len(v.Input)-1] },
		"bare, and logits":    func(v *backend.Values) { v.Want = []backend.Wanted{{Hidden: true, Bare: true, Logits: true}} },
		"bare without hidden": func(v *backend.Values) { v.Want = []backend.Wanted{{Bare: true}} },
	} {
		v := rowsOf(2)
		v.Input = make([]float32, 2*width)
		change(&v)
		if err := f.Start(t.Context(), v); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v", what, err)
		}
	}
	for what, spoil := range map[string]func(p *listed, x backend.Buffer){
		"two inputs":            func(p *listed, x backend.Buffer) { p.Input(x); p.Input(x) },
		"parts of other widths": func(p *listed, x backend.Buffer) { p.Join(p.Buffer(3*width), x, x) },
		"a part of itself":      func(p *listed, x backend.Buffer) { p.Join(x, x) },
		"no parts":              func(p *listed, x backend.Buffer) { p.Join(x) },
	} {
		p := begin(t, b)
		x := p.Buffer(width)
		p.Embed(x, matrix(t, b, table))
		spoil(p, x)
		if f, err := b.Compile(p.Program); err == nil {
			f.Close()
			t.Errorf("%s: want an error", what)
		}
	}
}
