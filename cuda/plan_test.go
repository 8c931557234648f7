package cuda

import (
	"math/rand/v2"
	"testing"

	"windrow/backend"
	"windrow/backend/vectors"
)

// TestJoinedNorms records norms before projections whose normed rows have other
// readers too, or none: joined where nobody else reads them, and in any case with
// the bits that they have where each norm is read before anything else happens.
func TestJoinedNorms(t *testing.T) {
	b := openCUDA(t)
	defer b.Close()
	y := newToy(t, b, backend.Affine4, 1, 1)
	l := &y.layers[0]
	square, err := b.Matrix(*vectors.Tensor(rand.New(rand.NewPCG(4, 4)), backend.Affine4, y.hidden, y.hidden, 64))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		joined int
		record func(p backend.Pass, norm func(dst, x backend.Buffer))
	}{
		{"only reader", 1, func(p backend.Pass, norm func(dst, x backend.Buffer)) {
			norm(y.h, y.x)
			p.Project(y.targets[:], y.h, l.qkv[:])
			norm(y.h, y.x)
		}},
		{"gate and up", 1, func(p backend.Pass, norm func(dst, x backend.Buffer)) {
			norm(y.h, y.x)
			p.GatedProject(y.mlp, y.h, l.gate, l.up)
			p.ProjectAdd(y.x, y.mlp, l.down)
			norm(y.h, y.x)
		}},
		{"read later", 0, func(p backend.Pass, norm func(dst, x backend.Buffer)) {
			norm(y.h, y.x)
			p.Project(y.targets[:], y.h, l.qkv[:])
		}},
		{"two readers", 0, func(p backend.Pass, norm func(dst, x backend.Buffer)) {
			norm(y.h, y.x)
			p.Project(y.targets[:2], y.h, l.qkv[:2])
			p.Project(y.targets[2:], y.h, l.qkv[2:])
			norm(y.h, y.x)
		}},
		{"another operation between", 0, func(p backend.Pass, norm func(dst, x backend.Buffer)) {
			norm(y.h, y.x)
			norm(y.x, y.x)
			p.Project(y.targets[:], y.h, l.qkv[:])
			norm(y.h, y.x)
		}},
		{"the target is the norm's input", 0, func(p backend.Pass, norm func(dst, x backend.Buffer)) {
			norm(y.h, y.x)
			p.Project([]backend.Buffer{y.x}, y.h, []backend.Linear{{Weight: square}})
			norm(y.h, y.x)
		}},
		{"the target is the normed row", 0, func(p backend.Pass, norm func(dst, x backend.Buffer)) {
			norm(y.h, y.x)
			p.Project([]backend.Buffer{y.h}, y.h, []backend.Linear{{Weight: square}})
		}},
		{"a residual", 0, func(p backend.Pass, norm func(dst, x backend.Buffer)) {
			norm(y.h, y.x)
			p.ProjectAdd(y.x, y.h, backend.Linear{Weight: square})
			norm(y.h, y.x)
		}},
	} {
		// run returns all buffers; apart is where each norm is flushed alone.
		run := func(rows int, apart bool) (out []float32, joined int) {
			first, err := b.Begin(rows)
			if err != nil {
				t.Fatal(err)
			}
			p := first.(*pass)
			y.begin(p)
			p.Embed(y.x, y.embed, make([]int32, rows))
			c.record(p, func(dst, x backend.Buffer) {
				p.RMSNorm(dst, x, y.norm, 1e-5)
				if apart {
					p.Read(dst)
				}
			})
			p.Read(y.x)
			for i := range p.plan.actions {
				if a := &p.plan.actions[i]; a.kind != opRMSNorm && a.norm[0] != 0 {
					joined++
				}
			}
			for _, z := range []backend.Buffer{y.x, y.q, y.k, y.v, y.mlp, y.h} {
				if z.(*buffer).valid != 0 {
					out = append(out, p.Read(z)[:z.Width()]...)
				}
			}
			if err := p.End(); err != nil {
				t.Fatal(err)
			}
			return out, joined
		}
		got, joined := run(1, false)
		if joined != c.joined {
			t.Errorf("%s: %d norms joined, want %d", c.name, joined, c.joined)
		}
		want, _ := run(1, true)
		n := len(got) - y.hidden // h, read later, may have been kept in bf16
		if len(got) != len(want) || vectors.Equal(got[:n], want[:n]) != nil {
			t.Errorf("%s: other bits than with norms apart: %v", c.name, vectors.Equal(got, want))
		}
		several, joined := run(2, false)
		if joined != 0 || len(got) != len(several) || vectors.Equal(got, several) != nil {
			t.Errorf("%s: other bits than among two rows (%d norms joined): %v", c.name, joined, vectors.Equal(got, several))
		}
	}
}
