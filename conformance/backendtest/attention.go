package backendtest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"windrow/backend"
)

// heads is one shape of attention.
type heads struct {
	q, kv, dim int
	norm, rope bool
	pairs      int // that are rotated; 0: all of a head
}

// attended is a sequence with its keys and values in float64, as stored.
type attended struct {
	kv           backend.Storage
	keys, values [][]float64 // by index: [kv heads · dim]
}

// attentionStep runs RotateStore and Attend over one packed batch, and returns
// what came out with what should have.
func attentionStep(t *testing.T, b backend.Backend, r *rand.Rand, h heads, seqs []*attended, rows []int, layer int, keep bool) (got []float32, want []float64) {
	t.Helper()
	total := 0
	for _, n := range rows {
		total += n
	}
	q := random(r, "q", backend.F32, 2, total, h.q*h.dim)
	k := random(r, "k", backend.F32, 2, total, h.kv*h.dim)
	v := random(r, "v", backend.F32, 1, total, h.kv*h.dim)
	hs := backend.Heads{KVHeads: h.kv, HeadDim: h.dim, Eps: 1e-6}
	qn, kn := random(r, "qn", backend.F32, 1, h.dim), random(r, "kn", backend.F32, 1, h.dim)
	if h.norm {
		hs.QNorm, hs.KNorm = vector(t, b, qn), vector(t, b, kn)
	}
	var table *angles
	pairs := h.dim / 2
	if h.pairs > 0 {
		pairs = h.pairs
	}
	table, hs.Rotation = rotation(t, b, pairs, total, func(int, int) (cos, sin float32) {
		angle := 0.0
		if h.rope {
			angle = r.Float64() * 6
		}
		return float32(math.Cos(angle)), float32(math.Sin(angle))
	})
	values := rowsOf(total)
	for i, p := range r.Perm(total) {
		values.Positions[i] = int32(p)
	}
	p := begin(t, b)
	qb, kb, vb, out := p.load(q), p.load(k), p.load(v), p.Buffer(h.q*h.dim)
	var spans []backend.Span
	first := 0
	for i, n := range rows {
		spans = append(spans, backend.Span{Storage: seqs[i].kv, Base: len(seqs[i].keys), First: first, Rows: n})
		first += n
	}
	scale := float32(1 / math.Sqrt(float64(h.dim)))
	p.RotateStore(qb, kb, vb, hs, layer)
	p.Attend(out, qb, layer, scale)
	p.Tap(out)
	values.Spans = spans
	_, taps := p.run(values)
	got = taps[0]

	head := func(x, norm []float64, row int) []float64 {
		if h.norm {
			x = rmsNorm(x, norm, 1e-6)
		}
		at := int(values.Positions[row]) * pairs
		y := rotated(x[:2*pairs], table.cos[at:at+pairs], table.sin[at:at+pairs])
		return append(y, x[2*pairs:]...)
	}
	for si, s := range spans {
		seq := seqs[si]
		base := len(seq.keys)
		for row := s.First; row < s.First+s.Rows; row++ {
			var key []float64
			for i := range h.kv {
				at := (row*h.kv + i) * h.dim
				key = append(key, head(k.values[at:at+h.dim], kn.values, row)...)
			}
			seq.keys = append(seq.keys, key)
			seq.values = append(seq.values, v.values[row*h.kv*h.dim:(row+1)*h.kv*h.dim])
			l := seq.kv.Layout()
			index := len(seq.keys) - 1
			for i := range h.q {
				at := (row*h.q + i) * h.dim
				query := head(q.values[at:at+h.dim], qn.values, row)
				kvHead := i / (h.q / h.kv) * h.dim
				weights := make([]float64, index+1)
				var sum float64
				for j := range weights {
					if j >= l.Keep && j < l.Visible(index) {
						continue
					}
					var dot float64
					for c := range h.dim {
						dot += query[c] * seq.keys[j][kvHead+c]
					}
					weights[j] = math.Exp(dot * float64(scale))
					sum += weights[j]
				}
				for c := range h.dim {
					var y float64
					for j, w := range weights {
						y += w * seq.values[j][kvHead+c]
					}
					want = append(want, y/sum)
				}
			}
		}
		if !keep {
			seq.keys, seq.values = seq.keys[:base], seq.values[:base]
		}
	}
	return got, want
}

// kvTypes are those that a backend stores.
func kvTypes(b backend.Backend) []backend.KVType {
	types := []backend.KVType{backend.KVF32, backend.KVBF16, backend.KVInt8}
	if b.Features().KVF16 {
		types = append(types, backend.KVF16)
	}
	return types
}

func attentionTolerance(b backend.Backend, kv backend.KVType) float64 {
	switch kv {
	case backend.KVBF16:
		// A score of size s moves by s·2⁻⁹; scores here reach about 10.
		return 4 * tolBF16
	case backend.KVF16:
		if b.Features().Exact {
			return tolBF16 / 2
		}
		return 4 * tolBF16 // queries may be rounded to bf16
	case backend.KVInt8:
		return tolInt8KV
	}
	return 2 * tolF32
}

func testAttention(t *testing.T, b backend.Backend) {
	for _, kvType := range kvTypes(b) {
		for _, h := range []heads{{1, 1, 2, false, false, 0}, {4, 2, 64, true, true, 0}, {6, 2, 80, false, true, 0}, {5, 1, 130, true, true, 0}, {8, 8, 32, false, true, 0}, {4, 2, 128, true, true, 0}} {
			t.Run(fmt.Sprintf("%v %d over %d heads of %d", kvType, h.q, h.kv, h.dim), func(t *testing.T) {
				r := seeded(uint64(h.dim) + uint64(kvType)<<32)
				var seqs []*attended
				for range 3 {
					// A layer that keeps nothing stands before the one with keys.
					l := backend.KeysLayout(2, h.kv, h.dim, kvType, 300)
					l.Layers[0] = backend.LayerStore{}
					kv, err := b.NewStorage(l)
					if err != nil {
						t.Fatal(err)
					}
					defer kv.Close()
					seqs = append(seqs, &attended{kv: kv})
				}
				// Prefill, one row, a window that is not kept, several
				// sequences at once, and steps across a tile's border.
				for step, rows := range [][]int{{50}, {1}, {17, 3}, {9, 40, 1}, {16, 16, 16}, {70, 1, 33}, {1, 1, 1}} {
					keep := step != 4
					got, want := attentionStep(t, b, r, h, seqs[:len(rows)], rows, 1, keep)
					compare(t, fmt.Sprintf("rows %v", rows), got, want, attentionTolerance(b, kvType))
				}
				if n, per := seqs[0].kv.Bytes(), seqs[0].kv.Layout().BytesPerToken(); n < 147*per || n > (147+128)*per {
					t.Errorf("147 tokens take %d bytes, want about %d", n, 147*per)
				}
			})
		}
	}
}

func testRotating(t *testing.T, b backend.Backend) {
	h := heads{4, 2, 16, true, true, 0}
	for _, keep := range []int{0, 4, 70} {
		for _, window := range []int{90, 150} {
			l := backend.KeysLayout(1, h.kv, h.dim, backend.KVF32, window+20)
			l.Window, l.Keep = window, keep
			kv, err := b.NewStorage(l)
			if err != nil {
				t.Fatal(err)
			}
			r := seeded(uint64(keep*1000 + window))
			seqs := []*attended{{kv: kv}}
			for step := range 60 {
				n := []int{1, 20, 3, 16}[step%4]
				got, want := attentionStep(t, b, r, h, seqs, []int{n}, 0, step%5 != 3)
				compare(t, fmt.Sprintf("keep %d of %d, step %d at %d", keep, window, step, len(seqs[0].keys)), got, want, attentionTolerance(b, backend.KVF32))
			}
			if most := int64(window+20+64) * kv.Layout().BytesPerToken(); kv.Bytes() > most {
				t.Errorf("keep %d of %d: %d bytes, want at most %d", keep, window, kv.Bytes(), most)
			}
			kv.Close()
		}
	}
}

// testPartialRotation rotates some of a head's elements: the others are stored, and
// attended to, as they are. A backend may lack it.
func testPartialRotation(t *testing.T, b backend.Backend) {
	h := heads{4, 2, 64, true, true, 16}
	_, some := rotation(t, b, h.pairs, 4, someAngles)
	p := begin(t, b)
	q, k := p.Buffer(h.q*h.dim), p.Buffer(h.kv*h.dim)
	p.Embed(q, matrix(t, b, random(seeded(9), "table", backend.F32, 1, 4, h.q*h.dim)))
	p.RotateStore(q, k, p.Buffer(h.kv*h.dim), backend.Heads{KVHeads: h.kv, HeadDim: h.dim, Rotation: some}, 0)
	f, err := b.Compile(p.Program)
	if lacks := (*backend.UnsupportedError)(nil); errors.As(err, &lacks) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	kv, err := b.NewStorage(backend.KeysLayout(1, h.kv, h.dim, backend.KVF32, 100))
	if err != nil {
		t.Fatal(err)
	}
	defer kv.Close()
	r := seeded(10)
	seqs := []*attended{{kv: kv}}
	for _, rows := range []int{40, 1, 17} {
		got, want := attentionStep(t, b, r, h, seqs, []int{rows}, 0, true)
		compare(t, fmt.Sprintf("%d rows", rows), got, want, attentionTolerance(b, backend.KVF32))
	}
}
