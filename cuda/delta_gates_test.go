package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/quant"
)

// TestGatesJoined: b and a of a recurrent layer that are made by one projection have the
// bits that they have by two, and are not joined where somebody else reads them.
func TestGatesJoined(t *testing.T) {
	b := openBackend(t, false).(*Backend)
	defer b.Close()
	const width, rows = 64, 40
	shape := backend.StateShape{KeyHeads: 8, ValueHeads: 16, KeyDim: 8, ValueDim: 8, Conv: 4}
	r := rand.New(rand.NewPCG(4, 5))
	tensor := func(dt backend.DType, shape ...int) backend.Tensor {
		y := backend.Tensor{Name: "x", DType: dt, Shape: shape}.Allocated()
		quant.Blocks(y.Data, dt, vectors.Normals(r, y.Elements()))
		return y
	}
	matrix := func(dt backend.DType, out int) backend.Linear {
		m, err := b.Matrix(tensor(dt, out, width))
		if err != nil {
			t.Fatal(err)
		}
		return backend.Linear{Weight: m}
	}
	vector := func(n int) backend.Vector {
		v, err := b.Vector(tensor(backend.F32, n))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	table := matrix(backend.F32, rows).Weight
	for _, dt := range []backend.DType{backend.BF16, backend.Q8_0} {
		weights := []backend.Linear{matrix(dt, shape.Channels()), matrix(dt, shape.Values()), matrix(dt, shape.ValueHeads), matrix(dt, shape.ValueHeads)}
		d := backend.Delta{StateShape: shape, Eps: 1e-6, Taps: vector(shape.Channels() * shape.Conv), LogDecay: vector(shape.ValueHeads), TimeStep: vector(shape.ValueHeads), Norm: vector(shape.ValueDim)}
		compile := func(apart bool) *forward {
			p := new(backend.Program)
			x, qkv, z, bs, as, dst := p.Buffer(width), p.Buffer(shape.Channels()), p.Buffer(shape.Values()), p.Buffer(shape.ValueHeads), p.Buffer(shape.ValueHeads), p.Buffer(shape.Values())
			n := shape.Group()
			d.Q, d.K = backend.Strided{Buffer: qkv, Stride: shape.KeyDim}, backend.Strided{Buffer: qkv, Stride: shape.KeyDim, First: shape.Keys()}
			d.V, d.Z = backend.Strided{Buffer: qkv, Stride: n * shape.ValueDim, First: 2 * shape.Keys()}, backend.Strided{Buffer: z, Stride: n * shape.ValueDim}
			d.B, d.A = backend.Strided{Buffer: bs, Stride: n}, backend.Strided{Buffer: as, Stride: n}
			p.Embed(x, table)
			for layer := range 2 {
				p.Project([]backend.Buffer{qkv, z, bs, as}, x, weights)
				p.Delta(dst, d, layer)
			}
			p.Tap(dst)
			if apart {
				p.Tap(as)
			}
			f, err := b.compile(p)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(f.Close)
			return f
		}
		launches := func(f *forward) (n int) {
			for _, s := range f.sections {
				for _, o := range s.ops {
					if o.kind == opProject {
						n++
					}
				}
			}
			return n
		}
		together, apart := compile(false), compile(true)
		if one, two := launches(together), launches(apart); one != 2 || two != 4 {
			t.Errorf("%v: %d launches of projections, and %d apart, want 2 and 4", dt, one, two)
		}
		for _, n := range []int{1, 5, rows} {
			var shown [2][]float32
			for i, f := range []*forward{together, apart} {
				s, err := b.NewStorage(backend.Layout{Layers: f.program.Stores(), DType: backend.KVF32, Slots: 64, LogRows: 8})
				if err != nil {
					t.Fatal(err)
				}
				v := backend.Values{Tokens: make([]int32, n), Positions: make([]int32, n), Spans: []backend.Span{{Storage: s, Rows: n}}}
				for j := range v.Tokens {
					v.Tokens[j] = int32(j)
				}
				v.Tap = func(index int, states []float32) {
					if index == 0 {
						shown[i] = states
					}
				}
				if err := f.Start(t.Context(), v); err != nil {
					t.Fatal(err)
				}
				if _, err := f.Wait(); err != nil {
					t.Fatal(err)
				}
				s.Close()
			}
			if err := vectors.Equal(shown[0], shown[1]); err != nil {
				t.Error(fmt.Errorf("%v, %d rows: %w", dt, n, err))
			}
			if x := float64(shown[0][0]); math.IsNaN(x) || x == 0 {
				t.Errorf("%v: nothing was computed: %v", dt, x)
			}
		}
	}
}
