package backendtest

import (
	"fmt"
	"testing"

	"windrow/backend"
)

// testKeep compares forwards of kept operations with the same ones listed, over
// storages of their own: their bits are equal, whatever values and rows come in what order.
func testKeep(t *testing.T, b backend.Backend) {
	const hidden, qHeads, kvHeads, dim, vocab = 64, 2, 1, 32, 600
	r := seeded(21)
	table := matrix(t, b, random(r, "table", backend.BF16, 1, vocab, hidden))
	linear := func(out, in int) backend.Linear {
		return backend.Linear{Weight: matrix(t, b, random(r, "w", backend.BF16, 0.15, out, in))}
	}
	wq, wk, wv, wo := linear(qHeads*dim, hidden), linear(kvHeads*dim, hidden), linear(kvHeads*dim, hidden), linear(hidden, qHeads*dim)
	norm := vector(t, b, random(r, "norm", backend.F32, 1, hidden))
	list := func(v backend.Values) (backend.Pass, backend.Buffer, []backend.Result) {
		t.Helper()
		p := begin(t, b, len(v.Tokens))
		x := p.Buffer(hidden)
		q, k, v1, a := p.Buffer(qHeads*dim), p.Buffer(kvHeads*dim), p.Buffer(kvHeads*dim), p.Buffer(qHeads*dim)
		p.Embed(x, table, v.Tokens)
		p.Project([]backend.Buffer{q, k, v1}, x, []backend.Linear{wq, wk, wv})
		p.RotateStore(q, k, v1, backend.Heads{Eps: 1e-6, Cos: v.Cos, Sin: v.Sin}, v.Spans, 0)
		p.Attend(a, q, v.Spans, 0, 0.17)
		p.ProjectAdd(x, a, wo)
		results, err := p.Results(x, norm, 1e-6, table, v.Want)
		if err != nil {
			t.Fatal(err)
		}
		return p, x, results
	}
	storage := func() backend.KV {
		kv, err := b.NewKV(backend.KVLayout{Layers: 1, KVHeads: kvHeads, HeadDim: dim, DType: backend.KVBF16, Slots: 400})
		if err != nil {
			t.Fatal(err)
		}
		return kv
	}
	mine, other := storage(), storage()
	defer mine.Close()
	defer other.Close()
	values := func(kv backend.KV, base, rows int, w backend.Want) backend.Values {
		v := backend.Values{Spans: []backend.Span{{KV: kv, Base: base, Rows: rows}}, Want: w}
		for i := range rows {
			v.Tokens = append(v.Tokens, int32((base+i)*37%vocab))
			for c := range dim / 2 {
				v.Cos = append(v.Cos, 1/float32(1+(base+i+c)%5))
				v.Sin = append(v.Sin, float32((base+i)%7)/7)
			}
		}
		return v
	}
	want := func(from, to int) backend.Want {
		w := backend.Want{TopK: 2, Logits: true, Except: 3}
		for r := from; r < to; r++ {
			w.Rows = append(w.Rows, int32(r))
		}
		return w
	}

	p, _, _ := list(values(mine, 0, 5, want(4, 5)))
	keeper, ok := p.(backend.Keeper)
	if !ok {
		end(t, p)
		t.Skip("keeps no operations")
	}
	kept, err := keeper.Keep()
	if err != nil || kept == nil {
		t.Fatalf("kept %v, error %v", kept, err)
	}
	p, _, _ = list(values(other, 0, 5, want(4, 5)))
	end(t, p)
	base := 5
	for i, s := range []struct {
		rows int
		want backend.Want
	}{
		{1, want(0, 1)}, {1, want(0, 1)}, {7, want(0, 7)}, {2, backend.Want{Rows: []int32{1}, TopK: 70, Except: -1, Limit: 500}},
		{40, want(39, 40)}, {1, want(0, 1)}, {150, want(0, 150)}, {20, want(3, 20)}, {1, backend.Want{Rows: []int32{0}, Except: -1}},
	} {
		if err := kept.Start(values(mine, base, s.rows, s.want)); err != nil {
			t.Fatal(err)
		}
		got, err := kept.Wait()
		if err != nil {
			t.Fatal(err)
		}
		p, _, listed := list(values(other, base, s.rows, s.want))
		end(t, p)
		if len(got) != len(listed) {
			t.Fatalf("forward %d: %d results, want %d", i, len(got), len(listed))
		}
		for r := range got {
			what := fmt.Sprintf("forward %d, row %d", i, r)
			a, z := got[r], listed[r]
			equalBits(t, what, []float32{a.Entropy, a.LogSumExp, float32(a.Argmax)}, []float32{z.Entropy, z.LogSumExp, float32(z.Argmax)})
			equalBits(t, what+", logits", a.Logits, z.Logits)
			if fmt.Sprint(a.Top) != fmt.Sprint(z.Top) {
				t.Errorf("%s: candidates %v, want %v", what, a.Top, z.Top)
			}
		}
		base += s.rows
	}

	if err := kept.Start(values(mine, base, 1, backend.Want{})); err == nil {
		t.Error("a forward of which nothing is wanted")
	}
	if _, err := kept.Wait(); err == nil {
		t.Error("results of a forward that was not begun")
	}
	p, x, _ := list(values(other, base, 1, want(0, 1)))
	p.Read(x)
	if k, err := p.(backend.Keeper).Keep(); k != nil || err != nil {
		t.Errorf("after a Read: kept %v, error %v", k, err)
	}
}
