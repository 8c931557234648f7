package backendtest

import (
	"fmt"
	"os"
	"testing"

	"windrow/backend"
)

// companions are the row counts among which a row must keep its bits.
var companions = []int{2, 7, 16, 33, 512}

// testInvariance compares a row's bits alone with the same row among others,
// through a whole block: norm, projections, rotation, attention over a cached
// prefix, gated MLP, residuals, head.
func testInvariance(t *testing.T, b backend.Backend) {
	for _, dt := range dtypes {
		for _, kvType := range kvTypes(b) {
			if (testing.Short() || dt.Quantized()) && kvType != backend.KVBF16 || testing.Short() && dt != backend.BF16 {
				continue
			}
			t.Run(fmt.Sprintf("%v, kv %v", dt, kvType), func(t *testing.T) { blockInvariance(t, b, dt, kvType) })
		}
	}
}

// testInvarianceBrief is testInvariance for floats, groups and blocks, once.
func testInvarianceBrief(t *testing.T, b backend.Backend) {
	for dt, kvType := range map[backend.DType]backend.KVType{backend.BF16: backend.KVF32, backend.Affine4: backend.KVBF16, backend.Q4_K: backend.KVInt8} {
		t.Run(fmt.Sprintf("%v, kv %v", dt, kvType), func(t *testing.T) { blockInvariance(t, b, dt, kvType) })
	}
}

func blockInvariance(t *testing.T, b backend.Backend, dt backend.DType, kvType backend.KVType) {
	const kvHeads, dim, vocab, prefix = 2, 32, 700, 37
	hidden, qHeads, mlp := 96, 4, 160
	if dt.Quantized() { // whole blocks of 256
		hidden, qHeads, mlp = 256, 8, 512
	}
	r := seeded(uint64(dt)*10 + uint64(kvType))
	most := companions[len(companions)-1]
	if n := b.Features().BatchInvariantRows; most > n {
		most = n
	}
	if dt.Quantized() && os.Getenv("WINDROW_SLOW") == "" {
		most = min(most, 33) // each row alone decodes the whole block
	}
	x := random(r, "x", backend.F32, 1, prefix+most, hidden)
	linear := func(out, in int) backend.Linear {
		return backend.Linear{Weight: matrix(t, b, random(r, "w", dt, 0.15, out, in))}
	}
	norm, headNorm := vector(t, b, random(r, "norm", backend.F32, 1, hidden)), vector(t, b, random(r, "head norm", backend.F32, 1, dim))
	wq, wk, wv, wo := linear(qHeads*dim, hidden), linear(kvHeads*dim, hidden), linear(kvHeads*dim, hidden), linear(hidden, qHeads*dim)
	gate, up, down := linear(mlp, hidden), linear(mlp, hidden), linear(hidden, mlp)
	head := matrix(t, b, random(r, "head", dt, 0.3, vocab, hidden))
	table := matrix(t, b, x)

	hs := backend.Heads{KVHeads: kvHeads, HeadDim: dim, QNorm: headNorm, KNorm: headNorm, Eps: 1e-6}
	_, hs.Rotation = rotation(t, b, dim/2, prefix+most, someAngles)
	p := begin(t, b)
	res, h := p.Buffer(hidden), p.Buffer(hidden)
	q, k, v, a := p.Buffer(qHeads*dim), p.Buffer(kvHeads*dim), p.Buffer(kvHeads*dim), p.Buffer(qHeads*dim)
	m := p.Buffer(mlp)
	p.Embed(res, table)
	p.RMSNorm(h, res, norm, 1e-6)
	p.Project([]backend.Buffer{q, k, v}, h, []backend.Linear{wq, wk, wv})
	p.RotateStore(q, k, v, hs, 0)
	p.Attend(a, q, 0, 0.17)
	p.ProjectAdd(res, a, wo)
	p.RMSNorm(h, res, norm, 1e-6)
	p.GatedProject(m, h, gate, up)
	p.ProjectAdd(res, m, down)
	p.Tap(res)
	p.Head(res, norm, 1e-6, head, backend.NoBars)
	f := p.compile()
	defer f.Close()

	// block runs rows [from, to) of the sequence as one batch over what the
	// storage holds; it returns hidden states and results.
	block := func(kv backend.Storage, from, to int) ([]float32, []backend.Result) {
		t.Helper()
		v := rowsOf(to - from)
		v.Spans = []backend.Span{{Storage: kv, Base: from, Rows: to - from}}
		for i := range v.Tokens {
			v.Tokens[i], v.Positions[i] = int32(from+i), int32(from+i)
			v.Want = append(v.Want, backend.Wanted{Row: int32(i), TopK: 3, Logits: true})
		}
		results, taps := tapped(t, f, v)
		return taps[0], results
	}
	open := func() backend.Storage {
		kv, err := b.NewStorage(backend.KeysLayout(1, kvHeads, dim, kvType, prefix+most))
		if err != nil {
			t.Fatal(err)
		}
		block(kv, 0, prefix)
		return kv
	}
	one := open()
	defer one.Close()
	var states [][]float32
	var results []backend.Result
	for i := prefix; i < prefix+most; i++ {
		s, rs := block(one, i, i+1)
		states, results = append(states, s), append(results, rs[0])
	}
	for _, n := range companions {
		if n > most {
			continue
		}
		kv := open()
		s, rs := block(kv, prefix, prefix+n)
		for i := range n {
			what := fmt.Sprintf("row %d of %d", i, n)
			equalBits(t, what, s[i*hidden:(i+1)*hidden], states[i])
			equalBits(t, what+", logits", rs[i].Logits, results[i].Logits)
			if rs[i].Entropy != results[i].Entropy || rs[i].LogSumExp != results[i].LogSumExp || rs[i].Argmax != results[i].Argmax {
				t.Fatalf("%s: result %v %v, alone %v %v", what, rs[i].Entropy, rs[i].Argmax, results[i].Entropy, results[i].Argmax)
			}
		}
		kv.Close()
	}
}
