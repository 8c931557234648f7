package cuda

import (
	"math/rand/v2"
	"testing"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/cuda/emulator"
	"windrow/quant"
)

// joinedCase is norms before projections. joined is how many are joined where all
// buffers are read afterwards, and atEnd where nothing is.
type joinedCase struct {
	name          string
	joined, atEnd int
	list          func(p *listing, norm func(dst, x backend.Buffer))
}

// TestJoinedNorms lists norms before projections whose normed rows have other
// readers too, or none: joined where nobody else reads them, and in any case with
// the bits that they have where each norm is shown before anything else happens.
func TestJoinedNorms(t *testing.T) {
	b := openCUDA(t)
	defer b.Close()
	y := newToy(t, b, backend.Affine4, 1, 1)
	l := &y.layers[0]
	square, err := b.Matrix(*vectors.Tensor(rand.New(rand.NewPCG(4, 4)), backend.Affine4, y.hidden, y.hidden, 64))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []joinedCase{
		{"only reader", 1, 1, l.normedQKV},
		{"gate and up", 1, 1, l.normedGate},
		{"read later", 0, 1, func(p *listing, norm func(dst, x backend.Buffer)) {
			norm(p.h, p.x)
			p.Project(p.targets, p.h, l.qkv[:])
		}},
		{"two readers", 0, 0, func(p *listing, norm func(dst, x backend.Buffer)) {
			norm(p.h, p.x)
			p.Project(p.targets[:2], p.h, l.qkv[:2])
			p.Project(p.targets[2:], p.h, l.qkv[2:])
			norm(p.h, p.x)
		}},
		{"another operation between", 0, 0, func(p *listing, norm func(dst, x backend.Buffer)) {
			norm(p.h, p.x)
			norm(p.x, p.x)
			p.Project(p.targets, p.h, l.qkv[:])
			norm(p.h, p.x)
		}},
		{"the target is the norm's input", 0, 0, func(p *listing, norm func(dst, x backend.Buffer)) {
			norm(p.h, p.x)
			p.Project([]backend.Buffer{p.x}, p.h, []backend.Linear{{Weight: square}})
			norm(p.h, p.x)
		}},
		{"a residual", 0, 0, func(p *listing, norm func(dst, x backend.Buffer)) {
			norm(p.h, p.x)
			p.ProjectAdd(p.x, p.h, backend.Linear{Weight: square})
			norm(p.h, p.x)
		}},
	} {
		got := c.check(t, y, 1)
		several, joined, atEnd := c.run(t, y, 2, false)
		if joined != 0 || atEnd != 0 || len(got) != len(several) || vectors.Equal(got, several) != nil {
			t.Errorf("%s: other bits than among two rows (%d and %d norms joined): %v", c.name, joined, atEnd, vectors.Equal(got, several))
		}
	}
}

// TestJoinedNormsHopper lists norms of several rows before projections on an emulated device of compute
// capability 9.0, checked: up to eight of 2,048 inputs are joined, with the bits that they have apart.
func TestJoinedNormsHopper(t *testing.T) {
	t.Setenv("WINDROW_EMULATED_SMS", "8") // blocks have up to three strips, as they must
	b, err := New(Options{Library: emulator.CheckedHopper(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	y := newWideToy(t, b, backend.Affine4, 2048, 64, 1, 1)
	l := &y.layers[0]
	r := rand.New(rand.NewPCG(5, 5))
	for _, to := range []*backend.Linear{&l.qkv[0], &l.qkv[1], &l.qkv[2], &l.gate, &l.up} { // scales under 1/2, as held.cuh takes them
		x := vectors.Normals(r, to.Weight.Out()*y.hidden)
		for i := range x {
			x[i] /= 4
		}
		if to.Weight, err = b.Matrix(quant.Encode("w", backend.Affine4, to.Weight.Out(), y.hidden, 64, x)); err != nil {
			t.Fatal(err)
		}
	}
	for _, z := range []struct{ rows, joined int }{{1, 1}, {2, 1}, {5, 1}, {8, 1}, {9, 0}} {
		for _, c := range []joinedCase{{"q, k, v", z.joined, z.joined, l.normedQKV}, {"gate and up", z.joined, z.joined, l.normedGate}} {
			c.check(t, y, z.rows)
		}
	}
}

// normedQKV lists a norm that only q, k and v read.
func (l *toyLayer) normedQKV(p *listing, norm func(dst, x backend.Buffer)) {
	norm(p.h, p.x)
	p.Project(p.targets, p.h, l.qkv[:])
	norm(p.h, p.x)
}

// normedGate lists one that only gate and up read.
func (l *toyLayer) normedGate(p *listing, norm func(dst, x backend.Buffer)) {
	norm(p.h, p.x)
	p.GatedProject(p.mlp, p.h, l.gate, l.up)
	p.ProjectAdd(p.x, p.mlp, l.down)
	norm(p.h, p.x)
}

// check runs a case: as many norms are joined as it says, none where each is shown alone, and both have the same bits.
func (c joinedCase) check(t *testing.T, y *toy, rows int) (got []float32) {
	t.Helper()
	got, joined, atEnd := c.run(t, y, rows, false)
	if joined != c.joined || atEnd != c.atEnd {
		t.Errorf("%s, %d rows: %d norms joined, %d at the end; want %d and %d", c.name, rows, joined, atEnd, c.joined, c.atEnd)
	}
	want, joined, _ := c.run(t, y, rows, true)
	n := len(got) - y.hidden // h, shown later, may have been kept in bf16
	if joined != 0 || len(got) != len(want) || vectors.Equal(got[:n], want[:n]) != nil {
		t.Errorf("%s, %d rows: other bits than with norms apart (%d joined): %v", c.name, rows, joined, vectors.Equal(got, want))
	}
	return got
}

// run returns the first row of all buffers that are written, and how many norms are
// joined before they are shown, and where they are not. apart shows each norm alone.
func (c joinedCase) run(t *testing.T, y *toy, rows int, apart bool) (out []float32, joined, atEnd int) {
	t.Helper()
	p := y.list()
	c.list(p, func(dst, x backend.Buffer) {
		p.RMSNorm(dst, x, y.norm, 1e-5)
		if apart {
			p.Tap(dst)
		}
	})
	shown := 0
	for _, z := range []backend.Buffer{p.x, p.q, p.k, p.v, p.mlp, p.h} {
		for _, o := range p.Ops {
			if len(o.Dst) > 0 && (o.Dst[0] == z || len(o.Dst) > 1 && (o.Dst[1] == z || len(o.Dst) > 2 && o.Dst[2] == z)) {
				p.Tap(z)
				shown++
				break
			}
		}
	}
	f := p.compile(t)
	defer f.Close()
	var taps [][]float32
	v := backend.Values{Tokens: make([]int32, rows), Positions: make([]int32, rows), Tap: func(_ int, states []float32) {
		taps = append(taps, states[:len(states)/rows])
	}}
	if _, err := run(f, v); err != nil {
		t.Fatal(err)
	}
	for _, states := range taps[len(taps)-shown:] {
		out = append(out, states...)
	}
	joins := func(s section) (n int) {
		f.now.reset()
		if err := f.now.make(s); err != nil {
			t.Fatal(err)
		}
		for i := range f.now.actions {
			if a := &f.now.actions[i]; a.kind != opRMSNorm && a.norm[0] != 0 {
				n++
			}
		}
		return n
	}
	return out, joins(f.sections[0]), joins(f.rest(false))
}
