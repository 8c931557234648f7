package backendtest

import (
	"fmt"
	"math"
	"testing"

	"windrow/backend"
	"windrow/quant"
)

// testUnpacked runs the types that a backend may have no kernels for: those that
// it may hold converted (quant.ConvertedType). Embeddings are the weights themselves
// with exact arithmetic, on the CPU, and where the conversion is without loss; else
// each is within the half of a bf16's last bit.
func testUnpacked(t *testing.T, b backend.Backend) {
	r := seeded(8)
	exact := b.Features().Exact
	for _, dt := range backend.DTypes() {
		if _, ok := quant.UnitsOf(dt); !ok && quant.ConvertedType(dt, exact) == dt {
			continue
		}
		const out, in, rows = 24, 512, 3
		w := random(r, "w", dt, 1/math.Sqrt(in), out, in)
		x := random(r, "x", backend.F32, 1, rows, in)
		norm := random(r, "norm", backend.F32, 1, in)
		m := matrix(t, b, w)

		p := begin(t, b)
		table := p.Buffer(in)
		tokens := []int32{out - 1, 0, 7}
		p.Embed(table, m)
		p.Tap(table)
		_, taps := p.run(backend.Values{Tokens: tokens})
		got := taps[0]
		limit := 0.0
		if quant.ConvertedType(dt, exact) == backend.BF16 && b.Name() != "cpu" {
			limit = 1.0 / 256
		}
		for i, id := range tokens {
			for j, want := range w.values[int(id)*in : int(id+1)*in] {
				if v := float64(got[i*in+j]); math.Abs(v-want) > limit*math.Abs(want) {
					t.Fatalf("%v: embedding %d of token %d is %v, want %v", dt, j, id, v, want)
				}
			}
		}

		p = begin(t, b)
		buf, y, z := p.load(x), p.Buffer(out), p.Buffer(out)
		p.Project([]backend.Buffer{y}, buf, []backend.Linear{{Weight: m}})
		p.GatedProject(z, buf, backend.Linear{Weight: m}, backend.Linear{Weight: m})
		p.Tap(y)
		p.Tap(z)
		p.Head(buf, vector(t, b, norm), 1e-6, m, backend.NoBars)
		v := rowsOf(rows)
		v.Want = []backend.Wanted{{Row: 0, Logits: true, TopK: 2}, {Row: 2, Logits: true, TopK: 2}}
		results, taps := p.run(v)
		want := matmul(x.values, w.values, rows, in, out)
		compare(t, fmt.Sprintf("%v", dt), taps[0], want, tolerance(b, dt))
		for i, v := range want {
			want[i] = silu(v) * v
		}
		compare(t, fmt.Sprintf("%v, gated", dt), taps[1], want, 2*tolerance(b, dt))
		for i, row := range []int{0, 2} {
			h := rmsNorm(x.values[row*in:(row+1)*in], norm.values, 1e-6)
			compare(t, fmt.Sprintf("%v, logits of row %d", dt, row), results[i].Logits, matmul(h, w.values, 1, in, out), 2*tolerance(b, dt))
		}
	}
}
