package metal

import (
	"math/rand/v2"
	"testing"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/conformance/backendtest"
	"windrow/model"
)

// TestExperts runs the suite's part for mixtures of experts; with WINDROW_SLOW in exact
// arithmetic, too.
func TestExperts(t *testing.T) {
	if testing.Short() && !slow {
		t.Skip("the suite for mixtures on the emulator: leave -short out") // TestGoldenMixtures runs some
	}
	golden := goldenDir
	if !slow {
		golden = "" // TestGoldenMixtures has it
	}
	backendtest.RunExperts(t, golden, func(t *testing.T) backend.Backend { return openBackend(t, false) })
	if slow {
		backendtest.RunExperts(t, golden, func(t *testing.T) backend.Backend { return openBackend(t, true) })
	}
}

// goldenChunks runs a golden model in exact arithmetic, in one forward and in others: its
// float32 logits, and equal ones in all forwards of few rows.
func goldenChunks(t *testing.T, name string, chunks ...int) {
	b := openBackend(t, true)
	m, err := model.Load(b, backendtest.Source(t, goldenDir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var first []model.Deviation
	for _, chunk := range chunks {
		deviations, err := m.Validate(t.Context(), goldenTensors(t, name), model.ValidateOptions{KV: backend.KVF32, Chunk: chunk})
		if err != nil {
			t.Fatal(err)
		}
		if len(deviations) == 0 {
			t.Fatal("the golden file has no entries")
		}
		for i, d := range deviations {
			if !(d.RelativeNorm <= 5e-6) || d.ArgmaxEqual != 0 && d.ArgmaxEqual != d.Rows {
				t.Errorf("chunk %d: %s: relative norm %.3g, argmax equal in %d of %d rows", chunk, d.Entry, d.RelativeNorm, d.ArgmaxEqual, d.Rows)
			}
			if first != nil && chunk != 0 && d != first[i] {
				t.Errorf("chunk %d: %+v, before %+v", chunk, d, first[i])
			}
		}
		if chunk != 0 && first == nil {
			first = deviations
		}
		t.Logf("chunk %d: %s: relative norm %.3g", chunk, deviations[0].Entry, deviations[0].RelativeNorm)
	}
}

// TestGoldenMixtures compares a mixture of experts with its golden logits.
func TestGoldenMixtures(t *testing.T) { goldenChunks(t, "qwen3-moe-tiny", 0, 16, 7) }

// Experts whose gates, ups and downs have types of their own make what dense layers of
// these weights make.
func TestExpertsOfSeveralFormats(t *testing.T) {
	b := openBackend(t, true)
	const width, inner, rows = 256, 256, 11
	r := rand.New(rand.NewPCG(15, 1))
	matrix := func(dt backend.DType, out, in int) backend.Matrix {
		m, err := b.Matrix(*vectors.Tensor(r, dt, out, in, 64))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	e := new(backend.Experts)
	for _, types := range [][3]backend.DType{
		{backend.Q4_K, backend.Q6_K, backend.Affine8}, {backend.F32, backend.F32, backend.BF16}, {backend.Q8_0, backend.Q8_0, backend.Affine8}, {backend.Q8_0, backend.Q4_0, backend.F16},
	} {
		e.Gate, e.Up, e.Down = append(e.Gate, matrix(types[0], inner, width)), append(e.Up, matrix(types[1], inner, width)), append(e.Down, matrix(types[2], width, inner))
	}
	p, chosen := new(backend.Program), len(e.Gate)
	h, x, routing := p.Buffer(width), p.Buffer(width), p.Buffer(2*chosen)
	table := matrix(backend.F32, rows, width)
	p.Embed(h, table)
	p.Embed(x, table)
	p.Route(routing, h, matrix(backend.BF16, chosen, width), chosen, false)
	p.ExpertsAdd(x, h, routing, e)
	p.Tap(h)
	p.Tap(routing)
	p.Tap(x)
	for i := range chosen {
		middle, out := p.Buffer(inner), p.Buffer(width)
		p.GatedProject(middle, h, backend.Linear{Weight: e.Gate[i]}, backend.Linear{Weight: e.Up[i]})
		p.Project([]backend.Buffer{out}, middle, []backend.Linear{{Weight: e.Down[i]}})
		p.Tap(out)
	}
	f, err := b.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var taps [][]float32
	v := backend.Values{Positions: make([]int32, rows), Tap: func(_ int, states []float32) { taps = append(taps, states) }}
	for i := range int32(rows) {
		v.Tokens = append(v.Tokens, i)
	}
	if err := f.Start(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Wait(); err != nil {
		t.Fatal(err)
	}
	want := make([]float64, rows*width)
	for i := range want {
		want[i] = float64(taps[0][i])
		for j := range chosen {
			want[i] += float64(taps[1][i/width*2*chosen+chosen+j]) * float64(taps[3+j][i])
		}
	}
	if err := vectors.Near(taps[2], want, 1e-6); err != nil {
		t.Error(err)
	}
}
