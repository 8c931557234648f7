package backendtest

import (
	"fmt"
	"slices"
	"testing"

	"windrow/backend"
)

// small is a model of one layer: what forwards of it need.
type small struct {
	b      backend.Backend
	list   func() *listed // anew each time it is called
	layout backend.Layout
}

const smallVocabulary = 600

// newSmall makes its weights, whose programs differ in the head's bars.
func newSmall(t *testing.T, b backend.Backend, bars backend.Bars) *small {
	const hidden, qHeads, kvHeads, dim = 64, 6, 3, 32 // heads that two devices cannot share
	r := seeded(21)
	table := matrix(t, b, random(r, "table", backend.BF16, 1, smallVocabulary, hidden))
	linear := func(out, in int) backend.Linear {
		return backend.Linear{Weight: matrix(t, b, random(r, "w", backend.BF16, 0.15, out, in))}
	}
	wq, wk, wv, wo := linear(qHeads*dim, hidden), linear(kvHeads*dim, hidden), linear(kvHeads*dim, hidden), linear(hidden, qHeads*dim)
	norm := vector(t, b, random(r, "norm", backend.F32, 1, hidden))
	_, turn := rotation(t, b, dim/2, 500, someAngles)
	list := func() *listed {
		p := begin(t, b)
		x := p.Buffer(hidden)
		q, k, v, a := p.Buffer(qHeads*dim), p.Buffer(kvHeads*dim), p.Buffer(kvHeads*dim), p.Buffer(qHeads*dim)
		p.Embed(x, table)
		p.Tap(x)
		p.Project([]backend.Buffer{q, k, v}, x, []backend.Linear{wq, wk, wv})
		p.RotateStore(q, k, v, backend.Heads{KVHeads: kvHeads, HeadDim: dim, Eps: 1e-6, Rotation: turn}, 0)
		p.Attend(a, q, 0, 0.17)
		p.ProjectAdd(x, a, wo)
		p.TapNormed(x, p.Buffer(hidden), norm, 1e-6)
		p.Head(x, norm, 1e-6, table, bars)
		return p
	}
	return &small{b, list, backend.KeysLayout(1, kvHeads, dim, backend.KVBF16, 400)}
}

// storage opens keys and values of a sequence.
func (s *small) storage(t *testing.T) backend.Storage {
	t.Helper()
	kv, err := s.b.NewStorage(s.layout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kv.Close)
	return kv
}

// values are those of rows of a sequence from base on.
func (s *small) values(kv backend.Storage, base, rows int, want ...backend.Wanted) backend.Values {
	v := rowsOf(rows)
	v.Spans, v.Want = []backend.Span{{Storage: kv, Base: base, Rows: rows}}, want
	for i := range rows {
		v.Tokens[i], v.Positions[i] = int32((base+i)*37%smallVocabulary), int32(base+i)
	}
	return v
}

// each wants rows [from, to).
func each(from, to int, what backend.Wanted) (w []backend.Wanted) {
	for r := from; r < to; r++ {
		what.Row = int32(r)
		w = append(w, what)
	}
	return w
}

// testValues compares forwards of one compiled program with forwards that are each
// the first of a program of their own, over storages of their own: their bits are
// equal, whatever values and rows come in what order, tapped or not.
func testValues(t *testing.T, b backend.Backend) {
	m := newSmall(t, b, backend.Bars{Limit: 590, Except: 3})
	one := m.list().compile()
	defer one.Close()
	mine, other := m.storage(t), m.storage(t)
	full, least := backend.Wanted{TopK: 2, Logits: true}, backend.Wanted{}
	base := 0
	for i, s := range []struct {
		rows int
		want []backend.Wanted
		tap  bool
	}{
		{5, each(4, 5, full), false}, {1, each(0, 1, full), false}, {1, each(0, 1, full), true}, {7, each(0, 7, full), false},
		{2, nil, false}, {2, each(1, 2, backend.Wanted{TopK: 70}), false}, {40, each(39, 40, full), false}, {1, each(0, 1, full), false},
		{3, nil, true}, {150, each(0, 150, full), false}, {20, each(3, 20, full), false}, {1, each(0, 1, least), false}, {60, nil, false},
	} {
		v, w := m.values(mine, base, s.rows, s.want...), m.values(other, base, s.rows, s.want...)
		fresh := m.list().compile()
		var got, want []backend.Result
		var taps, wantTaps [][]float32
		if s.tap {
			got, taps = tapped(t, one, v)
			want, wantTaps = tapped(t, fresh, w)
		} else {
			got, want = run(t, one, v), run(t, fresh, w)
		}
		fresh.Close()
		sameResults(t, fmt.Sprintf("forward %d", i), got, want)
		for j := range wantTaps {
			equalBits(t, fmt.Sprintf("forward %d, tap %d", i, j), taps[j], wantTaps[j])
		}
		base += s.rows
	}
}

func sameResults(t *testing.T, what string, got, want []backend.Result) {
	t.Helper()
	for r := range want {
		a, z := got[r], want[r]
		what := fmt.Sprintf("%s, result %d", what, r)
		equalBits(t, what, []float32{a.Entropy, a.LogSumExp, float32(a.Argmax)}, []float32{z.Entropy, z.LogSumExp, float32(z.Argmax)})
		equalBits(t, what+", logits", a.Logits, z.Logits)
		if !slices.Equal(a.Top, z.Top) {
			t.Errorf("%s: candidates %v, want %v", what, a.Top, z.Top)
		}
	}
}

// testWanted wants something else of every row: what one asks for changes nothing for
// another, and each gets what it asked for alone.
func testWanted(t *testing.T, b backend.Backend) {
	bars := backend.Bars{Limit: 590, Except: 3}
	m := newSmall(t, b, bars)
	f := m.list().compile()
	defer f.Close()
	one, few, odd := backend.NewIDSet(smallVocabulary), backend.NewIDSet(smallVocabulary), backend.NewIDSet(smallVocabulary)
	one.Add(417)
	for id := range int32(smallVocabulary) {
		if id < 10 || id > 580 { // some of them are barred
			few.Add(id)
		}
		if id%2 == 1 {
			odd.Add(id)
		}
	}
	kinds := []backend.Wanted{
		{}, {TopK: 1}, {TopK: 3, Logits: true}, {TopK: 70}, {Logits: true},
		{Allowed: one}, {Allowed: few, TopK: 40}, {Allowed: odd, TopK: 2, Logits: true}, {Allowed: odd}, {Allowed: odd[:2]},
	}
	for _, rows := range []int{len(kinds), 150} {
		kv := m.storage(t)
		var want []backend.Wanted
		for r := range rows {
			if k := (r*7 + 3) % (len(kinds) + 1); k < len(kinds) {
				w := kinds[k]
				w.Row = int32(r)
				want = append(want, w)
			}
		}
		got := run(t, f, m.values(kv, 0, rows, want...))
		logits := run(t, f, m.values(kv, 0, rows, each(0, rows, backend.Wanted{Logits: true})...))
		for i, w := range want {
			z := logits[w.Row].Logits
			wide := make([]float64, len(z))
			for j, v := range z {
				wide[j] = float64(v)
			}
			checkResult(t, fmt.Sprintf("%d rows, row %d of kind %+v", rows, w.Row, w), got[i], wide, w, bars, 1e-7)
			if got[i].Entropy != logits[w.Row].Entropy || got[i].LogSumExp != logits[w.Row].LogSumExp {
				t.Errorf("%d rows, row %d: entropy %v, %v where only logits are wanted", rows, w.Row, got[i].Entropy, logits[w.Row].Entropy)
			}
			if w.Logits {
				equalBits(t, fmt.Sprintf("logits of row %d", w.Row), got[i].Logits, z)
			}
		}
	}
}

// testDeferred has the sets of ids made, or taken away, by what the forward defers: once,
// and with the results of sets that were there before.
func testDeferred(t *testing.T, b backend.Backend) {
	m := newSmall(t, b, backend.Bars{Limit: 590, Except: 3})
	f := m.list().compile()
	defer f.Close()
	const rows = 12
	want := func(set func(r int) backend.IDSet) []backend.Wanted {
		list := each(0, rows, backend.Wanted{TopK: 2})
		for r := range list {
			list[r].Allowed = set(r)
		}
		return list
	}
	sets := want(func(r int) backend.IDSet {
		if r%3 == 2 {
			return nil
		}
		ids := backend.NewIDSet(smallVocabulary)
		for i := range 1 + 40*(r%3) {
			ids.Add(int32((97*r + 31*i + 12) % 590))
		}
		return ids
	})
	kv := m.storage(t)
	expected := run(t, f, m.values(kv, 0, rows, sets...))
	// What was there before is of another forward.
	v := m.values(kv, 0, rows, want(func(int) backend.IDSet {
		ids := backend.NewIDSet(smallVocabulary)
		ids.Add(500)
		return ids
	})...)
	calls := 0
	v.Deferred = func() {
		calls++
		for r := range v.Want {
			if sets[r].Allowed == nil {
				v.Want[r].Allowed = nil
			} else {
				copy(v.Want[r].Allowed, sets[r].Allowed)
			}
		}
	}
	sameResults(t, "sets that were made in the forward", run(t, f, v), expected)
	if calls != 1 {
		t.Errorf("what was deferred was called %d times", calls)
	}
}
