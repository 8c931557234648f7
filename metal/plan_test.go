package metal

import (
	"strings"
	"testing"

	"windrow/backend"
)

// Operations that a buffer's form does not suit have a conversion before them, once;
// where one form is read alone that one is written.
func TestPlanForms(t *testing.T) {
	b := NewDry(false)
	defer b.Close()
	bf16, f16 := testMatrix(t, b.Backend, backend.BF16, 64, 64), testMatrix(t, b.Backend, backend.F16, 64, 64)
	affine := testMatrix(t, b.Backend, backend.Affine4, 64, 64)
	norm := testVector(t, b.Backend, 64)
	for _, c := range []struct {
		name string
		list func(p *backend.Program, x, y, z backend.Buffer)
		want string
	}{
		{"bf16 alone is read", func(p *backend.Program, x, y, z backend.Buffer) {
			p.RMSNorm(y, x, norm, 1e-6)
			p.Project([]backend.Buffer{z}, y, []backend.Linear{bf16})
		}, "embed_bf16 rms_norm_bf16 project_8_bf16_bf16"},
		{"f32 alone is read", func(p *backend.Program, x, y, z backend.Buffer) {
			p.RMSNorm(y, x, norm, 1e-6)
			p.Project([]backend.Buffer{z}, y, []backend.Linear{f16})
		}, "embed_bf16 rms_norm_f32 project_8_f16_f32"},
		{"both are read", func(p *backend.Program, x, y, z backend.Buffer) {
			p.RMSNorm(y, x, norm, 1e-6)
			p.Project([]backend.Buffer{z, p.Buffer(64)}, y, []backend.Linear{bf16, f16})
			p.ProjectAdd(x, y, bf16)
		}, "embed_bf16 rms_norm_f32 project_8_f16_f32 convert_bf16_f32 project_8_bf16_bf16 project_8_bf16_bf16"},
		{"gate and up of two formats", func(p *backend.Program, x, y, z backend.Buffer) {
			p.RMSNorm(y, x, norm, 1e-6)
			p.GatedProject(z, y, bf16, affine)
			p.ProjectAdd(x, z, affine)
		}, "embed_bf16 rms_norm_bf16 project_8_bf16_bf16 project_8_affine4_bf16 gate_rows_bf16 project_8_affine4_bf16"},
		{"a buffer that is added to", func(p *backend.Program, x, y, z backend.Buffer) {
			p.RMSNorm(y, x, norm, 1e-6)
			p.ProjectAdd(y, x, f16)
			p.ProjectAdd(x, y, bf16)
		}, "embed_bf16 rms_norm_f32 project_8_f16_f32 convert_bf16_f32 project_8_bf16_bf16"},
	} {
		p := new(backend.Program)
		x, y, z := p.Buffer(64), p.Buffer(64), p.Buffer(64)
		p.Embed(x, bf16.Weight)
		c.list(p, x, y, z)
		f := compiled(t, b.Backend, p)
		b.Taken()
		if err := f.Start(t.Context(), backend.Values{Tokens: []int32{1}, Positions: []int32{0}}); err != nil {
			t.Fatal(err)
		}
		var kernels []string
		for _, d := range b.memory.log {
			kernels = append(kernels, d.kernel)
		}
		if _, err := f.Wait(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(kernels, " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// What another backend has taken is refused when a program is compiled, and keys and
// values when a forward starts.
func TestForeignParts(t *testing.T) {
	b, stranger := NewDry(false), NewDry(false)
	defer b.Close()
	defer stranger.Close()
	w, foreign := testMatrix(t, b.Backend, backend.BF16, 64, 64), testMatrix(t, stranger.Backend, backend.BF16, 64, 64)
	bias, odd := testVector(t, b.Backend, 64), testVector(t, stranger.Backend, 64)
	heads := backend.Heads{KVHeads: 1, HeadDim: 64, Rotation: testRotation(t, b.Backend, 64, 9)}
	for name, list := range map[string]func(p *backend.Program, x, y backend.Buffer){
		"a weight": func(p *backend.Program, x, y backend.Buffer) {
			p.Project([]backend.Buffer{y}, x, []backend.Linear{foreign})
		},
		"a bias": func(p *backend.Program, x, y backend.Buffer) {
			p.ProjectAdd(y, x, backend.Linear{Weight: w.Weight, Bias: odd})
		},
		"gate": func(p *backend.Program, x, y backend.Buffer) { p.GatedProject(y, x, foreign, w) },
		"up":   func(p *backend.Program, x, y backend.Buffer) { p.GatedProject(y, x, w, foreign) },
		"norm": func(p *backend.Program, x, y backend.Buffer) { p.RMSNorm(y, x, odd, 1) },
		"head": func(p *backend.Program, x, y backend.Buffer) { p.Head(x, bias, 1, foreign.Weight, backend.NoBars) },
		"the head's norm": func(p *backend.Program, x, y backend.Buffer) {
			p.Head(x, odd, 1, w.Weight, backend.NoBars)
		},
		"a head norm": func(p *backend.Program, x, y backend.Buffer) {
			h := heads
			h.KNorm = odd
			p.RotateStore(x, y, p.Buffer(64), h, 0)
		},
		"a rotation": func(p *backend.Program, x, y backend.Buffer) {
			h := heads
			h.Rotation = testRotation(t, stranger.Backend, 64, 9)
			p.RotateStore(x, y, p.Buffer(64), h, 0)
		},
	} {
		p := new(backend.Program)
		x, y := p.Buffer(64), p.Buffer(64)
		p.Embed(x, w.Weight)
		list(p, x, y)
		if p.Err() != nil {
			t.Fatalf("%s: %v", name, p.Err())
		}
		if _, err := b.Compile(p); err == nil || !strings.Contains(err.Error(), "of another backend") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	f := compiled(t, b.Backend, short(t, b.Backend))
	if err := f.Start(t.Context(), shortValues(t, stranger.Backend, 1, 0)); err == nil || !strings.Contains(err.Error(), "of this backend") {
		t.Errorf("keys of another backend: %v", err)
	}
}
