package cuda

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/backend/vectors"
)

// cutWeights are weights of a width of 128 in each split.
type cutWeights struct {
	t    *testing.T
	b    backend.Backend
	r    *rand.Rand
	turn backend.Rotation
	norm backend.Vector
}

const cutWidth = 128

func newCutWeights(t *testing.T, b backend.Backend) *cutWeights {
	c := &cutWeights{t: t, b: b, r: rand.New(rand.NewPCG(5, 5))}
	var err error
	if c.turn, err = b.Rotation(toyAngles(16), 100); err != nil {
		t.Fatal(err)
	}
	c.norm = c.vector(backend.SplitNone)
	return c
}

func (c *cutWeights) vector(split backend.Split) backend.Vector {
	x := vectors.Tensor(c.r, backend.F32, 1, cutWidth, 0)
	x.Shape, x.Split = []int{cutWidth}, split
	v, err := c.b.Vector(*x)
	if err != nil {
		c.t.Fatal(err)
	}
	return v
}

func (c *cutWeights) linear(split backend.Split) backend.Linear {
	x := vectors.Tensor(c.r, backend.F32, cutWidth, cutWidth, 0)
	x.Split = split
	m, err := c.b.Matrix(*x)
	if err != nil {
		c.t.Fatal(err)
	}
	return backend.Linear{Weight: m}
}

// ofHeads is a weight of so many outputs, which are KV heads, with a bias.
func (c *cutWeights) ofHeads(heads, out int) (y backend.Linear) {
	x := vectors.Tensor(c.r, backend.F32, out, cutWidth, 0)
	x.Split, x.Heads = backend.SplitOutputs, heads
	bias := vectors.Tensor(c.r, backend.F32, 1, out, 0)
	bias.Shape, bias.Split, bias.Heads = []int{out}, x.Split, heads
	var err error
	if y.Weight, err = c.b.Matrix(*x); err == nil {
		y.Bias, err = c.b.Vector(*bias)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return y
}

// biased is linear with a bias.
func (c *cutWeights) biased(split, bias backend.Split) backend.Linear {
	y := c.linear(split)
	y.Bias = c.vector(bias)
	return y
}

// list begins a program of some buffers of that width, the first embedded.
func (c *cutWeights) list() (*backend.Program, []backend.Buffer) {
	p := new(backend.Program)
	var list []backend.Buffer
	for range 6 {
		list = append(list, p.Buffer(cutWidth))
	}
	p.Embed(list[0], c.linear(backend.SplitNone).Weight)
	return p, list
}

var cutHeads = backend.Heads{KVHeads: 4, HeadDim: 32}

// TestGroupCut compares a layer whose weights are cut in every way with one GPU: what
// Taps show of buffers in parts, of some that several GPUs have, and of whole ones, and the
// results.
func TestGroupCut(t *testing.T) {
	for _, devices := range []int{2, 4} {
		for _, kvHeads := range []int{4, 2, 1} {
			if devices == 2 && kvHeads == 2 || devices == 4 && kvHeads == 4 || testing.Short() && devices > 2 && kvHeads == 1 {
				continue // nothing new, or little
			}
			t.Run(fmt.Sprintf("%d heads on %d", kvHeads, devices), func(t *testing.T) { groupCut(t, devices, kvHeads) })
		}
	}
}

func groupCut(t *testing.T, devices, kvHeads int) {
	forward := func(b backend.Backend) (taps [][]float32, out []float32) {
		c := newCutWeights(t, b)
		p, x := c.list()
		heads := cutHeads
		heads.Rotation, heads.KVHeads = c.turn, kvHeads
		keys := kvHeads * heads.HeadDim
		x[2], x[3] = p.Buffer(keys), p.Buffer(keys)
		p.Tap(x[0])
		p.Project(x[1:4], x[0], []backend.Linear{c.biased(backend.SplitOutputs, backend.SplitOutputs), c.ofHeads(kvHeads, keys), c.ofHeads(kvHeads, keys)})
		p.Tap(x[2])
		p.RotateStore(x[1], x[2], x[3], heads, 0)
		p.Attend(x[4], x[1], 0, 0.1)
		p.Tap(x[4])
		p.ProjectAdd(x[0], x[4], c.biased(backend.SplitInputs, backend.SplitNone))
		p.TapNormed(x[0], x[1], c.norm, 1e-6) // in another form than before
		p.GatedProject(x[4], x[0], c.linear(backend.SplitNone), c.linear(backend.SplitNone))
		p.ProjectAdd(x[0], x[4], c.linear(backend.SplitNone))
		p.Head(x[0], c.norm, 1e-6, c.linear(backend.SplitOutputs).Weight, backend.Bars{Limit: 100, Except: 2})
		f, err := b.Compile(p)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		kv, err := b.NewStorage(backend.KeysLayout(1, kvHeads, cutHeads.HeadDim, backend.KVF32, 200))
		if err != nil {
			t.Fatal(err)
		}
		defer kv.Close()
		for _, rows := range []int{3, 40} {
			v := values(kv, 0, rows)
			for i := range v.Tokens {
				v.Tokens[i] = int32(i * 3)
			}
			for _, tap := range []func(int, []float32){nil, func(_ int, states []float32) { taps = append(taps, states) }} {
				v.Tap = tap
				results, err := run(f, v)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range results {
					out = append(out, float32(r.Argmax), r.LogSumExp, r.Entropy)
				}
			}
		}
		return taps, out
	}
	one := openBackend(t, true)
	defer one.Close()
	got, out := forward(openGroupOf(t, true, devices))
	want, wantOut := forward(one)
	near := func(what string, got, want []float32) {
		exact := make([]float64, len(want))
		for i, v := range want {
			exact[i] = float64(v)
		}
		if err := vectors.Near(got, exact, 1e-5); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if len(got) != 8 || len(want) != 8 {
		t.Fatalf("%d and %d taps", len(got), len(want))
	}
	for i := range want {
		near("a tap", got[i], want[i])
	}
	near("results", out, wantOut)
}

// TestGroupCutRefusals compiles what GPUs cannot share.
func TestGroupCutRefusals(t *testing.T) {
	g := openGroup(t, true)
	c := newCutWeights(t, g)
	none, outputs, inputs := backend.SplitNone, backend.SplitOutputs, backend.SplitInputs
	alone := openBackend(t, true)
	defer alone.Close()
	stranger := newCutWeights(t, alone)
	for words, list := range map[string]func(p *backend.Program, x []backend.Buffer){
		"embed: a table in parts": func(p *backend.Program, x []backend.Buffer) { p.Embed(x[1], c.linear(outputs).Weight) },
		"rms norm: a buffer of width 128 is in parts": func(p *backend.Program, x []backend.Buffer) {
			p.Project(x[1:2], x[0], []backend.Linear{c.linear(outputs)})
			p.RMSNorm(x[1], x[1], c.norm, 1e-6)
		},
		"a weight of cut inputs makes sums": func(p *backend.Program, x []backend.Buffer) {
			p.Project(x[1:2], x[0], []backend.Linear{c.linear(inputs)})
		},
		"weight and bias are not cut alike": func(p *backend.Program, x []backend.Buffer) {
			p.Project(x[1:2], x[0], []backend.Linear{c.biased(outputs, none)})
		},
		"outputs in parts cannot be added": func(p *backend.Program, x []backend.Buffer) { p.ProjectAdd(x[1], x[0], c.linear(outputs)) },
		"which is not in parts":            func(p *backend.Program, x []backend.Buffer) { p.ProjectAdd(x[1], x[0], c.linear(inputs)) },
		"the bias of sums is whole": func(p *backend.Program, x []backend.Buffer) {
			p.Project(x[1:2], x[0], []backend.Linear{c.linear(outputs)})
			p.ProjectAdd(x[0], x[1], c.biased(inputs, outputs))
		},
		"gate and up are not cut alike": func(p *backend.Program, x []backend.Buffer) {
			p.GatedProject(x[1], x[0], c.linear(outputs), c.linear(none))
		},
		"queries, keys and values are not cut alike": func(p *backend.Program, x []backend.Buffer) {
			p.Project(x[1:2], x[0], []backend.Linear{c.linear(outputs)})
			p.RotateStore(x[0], x[1], x[0], c.heads(4), 0)
		},
		"layer 1 is cut, another one is not": func(p *backend.Program, x []backend.Buffer) {
			p.RotateStore(x[0], x[1], x[2], c.heads(4), 0)
			p.Project(x[1:4], x[0], []backend.Linear{c.linear(outputs), c.linear(outputs), c.linear(outputs)})
			p.RotateStore(x[1], x[2], x[3], c.heads(4), 1)
		},
		"1 kv heads over 2 GPUs": func(p *backend.Program, x []backend.Buffer) {
			p.Project(x[1:4], x[0], []backend.Linear{c.linear(outputs), c.linear(outputs), c.linear(outputs)})
			p.RotateStore(x[1], x[2], x[3], c.heads(1), 0)
		},
		"1 kv heads over 2 GPUs, whose parts are no heads": func(p *backend.Program, x []backend.Buffer) {
			p.Project(x[1:4], x[0], []backend.Linear{c.linear(outputs), c.ofHeads(1, cutWidth), c.linear(outputs)})
			p.RotateStore(x[1], x[2], x[3], c.heads(1), 0)
		},
		"2 kv heads over 2 GPUs, whose parts are no heads": func(p *backend.Program, x []backend.Buffer) {
			p.Project(x[1:4], x[0], []backend.Linear{c.linear(outputs), c.ofHeads(1, cutWidth), c.ofHeads(1, cutWidth)})
			p.RotateStore(x[1], x[2], x[3], c.heads(2), 0)
		},
		"rotate: queries, keys and values are not": func(p *backend.Program, x []backend.Buffer) {
			p.Project(x[1:4], x[0], []backend.Linear{c.ofHeads(1, cutWidth), c.ofHeads(1, cutWidth), c.ofHeads(1, cutWidth)})
			p.RotateStore(x[1], x[2], x[3], c.heads(1), 0)
		},
		"attend: queries are not": func(p *backend.Program, x []backend.Buffer) {
			k, v, heads := p.Buffer(cutWidth/2), p.Buffer(cutWidth/2), c.heads(2)
			p.Project([]backend.Buffer{x[1], x[2], k, v}, x[0], []backend.Linear{c.linear(outputs), c.ofHeads(1, cutWidth), c.ofHeads(1, cutWidth/2), c.ofHeads(1, cutWidth/2)})
			heads.KVHeads = 1
			p.RotateStore(x[1], k, v, heads, 0)
			p.Attend(x[4], x[2], 0, 1)
		},
		"of cut inputs from parts that several GPUs have": func(p *backend.Program, x []backend.Buffer) {
			p.Project(x[1:2], x[0], []backend.Linear{c.ofHeads(1, cutWidth)})
			p.ProjectAdd(x[0], x[1], c.linear(inputs))
		},
		"project: weight and bias are not": func(p *backend.Program, x []backend.Buffer) {
			w := c.ofHeads(1, cutWidth)
			w.Bias = c.vector(outputs)
			p.Project(x[1:2], x[0], []backend.Linear{w})
		},
		"gated project: gate and up": func(p *backend.Program, x []backend.Buffer) {
			p.GatedProject(x[1], x[0], c.linear(outputs), c.ofHeads(1, cutWidth))
		},
		"experts: gates and ups are cut": func(p *backend.Program, x []backend.Buffer) {
			routing := p.Buffer(2)
			p.Route(routing, x[0], c.grouped(2, 32, none), 1, true)
			up := c.some(outputs)
			up[1] = c.ofHeads(1, cutWidth).Weight
			p.ExpertsAdd(x[1], x[0], routing, &backend.Experts{Gate: c.some(outputs), Up: up, Down: c.some(inputs)})
		},
		"delta: what it takes is not": func(p *backend.Program, x []backend.Buffer) {
			p.Project(x[1:3], x[0], []backend.Linear{c.ofHeads(1, cutWidth), c.linear(outputs)})
			p.Delta(p.Buffer(32), c.delta(2, outputs, x[1], x[2]), 0)
		},
		"delta: time steps that are not": func(p *backend.Program, x []backend.Buffer) {
			p.Project(x[1:3], x[0], []backend.Linear{c.linear(outputs), c.linear(outputs)})
			d := c.delta(2, outputs, x[1], x[2])
			d.TimeStep = c.ofHeads(1, 2).Bias
			p.Delta(p.Buffer(32), d, 0)
		},
		"a head whose parts several GPUs have": func(p *backend.Program, x []backend.Buffer) {
			p.Head(x[0], c.norm, 1e-6, c.ofHeads(1, cutWidth).Weight, backend.NoBars)
		},
		"queries are not cut as keys and values are": func(p *backend.Program, x []backend.Buffer) {
			p.Project(x[1:4], x[0], []backend.Linear{c.linear(outputs), c.linear(outputs), c.linear(outputs)})
			p.RotateStore(x[1], x[2], x[3], c.heads(4), 0)
			p.Attend(x[4], x[0], 0, 1)
		},
		"route: a router in parts": func(p *backend.Program, x []backend.Buffer) {
			p.Route(p.Buffer(4), x[0], c.linear(outputs).Weight, 2, true)
		},
		"gates and ups are cut by outputs and downs by inputs": func(p *backend.Program, x []backend.Buffer) {
			c.experts(p, x, outputs, inputs, none, none)
		},
		"by inputs, all of them, or none": func(p *backend.Program, x []backend.Buffer) { c.experts(p, x, outputs, outputs, outputs, outputs) },
		"experts in groups of 32 and of 64 in a layer over several GPUs": func(p *backend.Program, x []backend.Buffer) {
			routing := p.Buffer(2)
			p.Route(routing, x[0], c.grouped(2, 32, none), 1, true)
			list := func(split backend.Split, groups ...int) (y []backend.Matrix) {
				for _, n := range groups {
					y = append(y, c.grouped(cutWidth, n, split))
				}
				return y
			}
			p.ExpertsAdd(x[1], x[0], routing, &backend.Experts{Gate: list(outputs, 32, 64), Up: list(outputs, 64, 64), Down: list(inputs, 32, 32)})
		},
		"the weight of the shared expert is in parts": func(p *backend.Program, x []backend.Buffer) {
			c.experts(p, x, outputs, inputs, outputs, inputs, outputs)
		},
		"experts: a buffer of width 128 is in parts": func(p *backend.Program, x []backend.Buffer) {
			p.Project(x[1:2], x[0], []backend.Linear{c.linear(outputs)})
			routing := p.Buffer(2)
			p.Route(routing, x[0], c.linear(none).Weight, 1, true)
			p.ExpertsAdd(x[0], x[1], routing, &backend.Experts{Gate: c.some(none), Up: c.some(none), Down: c.some(none)})
		},
		"what it takes is not cut alike": func(p *backend.Program, x []backend.Buffer) {
			p.Project(x[1:2], x[0], []backend.Linear{c.linear(outputs)})
			p.Delta(p.Buffer(32), c.delta(2, outputs, x[1], x[2]), 0)
		},
		"taps that are not cut as heads are": func(p *backend.Program, x []backend.Buffer) {
			p.Project(x[1:3], x[0], []backend.Linear{c.linear(outputs), c.linear(outputs)})
			d := c.delta(2, outputs, x[1], x[2])
			d.Taps = c.run(none, 192)
			p.Delta(p.Buffer(32), d, 0)
		},
		"decays that are not cut as heads are": func(p *backend.Program, x []backend.Buffer) {
			d := c.delta(2, none, x[1], x[2])
			d.LogDecay = c.run(outputs, 2)
			p.Delta(p.Buffer(32), d, 0)
		},
		"1 key heads over 2 GPUs": func(p *backend.Program, x []backend.Buffer) {
			p.Project(x[1:3], x[0], []backend.Linear{c.linear(outputs), c.linear(outputs)})
			p.Delta(p.Buffer(16), c.delta(1, outputs, x[1], x[2]), 0)
		},
		"of a buffer that is not cut by heads": func(p *backend.Program, x []backend.Buffer) {
			p.Project(x[1:3], x[0], []backend.Linear{c.linear(outputs), c.linear(outputs)})
			d := c.delta(2, outputs, x[1], x[2])
			d.V = backend.Strided{Buffer: x[1], First: 40, Stride: 16} // behind each other, in the second half
			p.Delta(p.Buffer(32), d, 0)
		},
		"delta: layer 1 is cut, another one is not": func(p *backend.Program, x []backend.Buffer) {
			p.RotateStore(x[0], x[1], x[2], c.heads(4), 0)
			p.Project(x[1:3], x[0], []backend.Linear{c.linear(outputs), c.linear(outputs)})
			p.Delta(p.Buffer(32), c.delta(2, outputs, x[1], x[2]), 1)
		},
		"tap: a buffer of width 128 is in parts of several runs": func(p *backend.Program, x []backend.Buffer) {
			p.Project(x[1:2], x[0], []backend.Linear{c.runs(outputs, 64, 64)})
			p.Tap(x[1])
		},
		"whose inputs are cut in runs of [64 64]": func(p *backend.Program, x []backend.Buffer) {
			p.Project(x[1:2], x[0], []backend.Linear{c.linear(outputs)})
			p.ProjectAdd(x[0], x[1], c.runs(inputs, 64, 64))
		},
		"a head of cut inputs": func(p *backend.Program, x []backend.Buffer) {
			p.Head(x[0], c.norm, 1e-6, c.linear(inputs).Weight, backend.NoBars)
		},
		"a weight of another backend": func(p *backend.Program, x []backend.Buffer) {
			p.Project(x[1:2], x[0], []backend.Linear{stranger.linear(none)})
		},
		"a norm or bias of another backend": func(p *backend.Program, x []backend.Buffer) { p.RMSNorm(x[1], x[0], stranger.norm, 1e-6) },
		"a rotation of another backend":     func(p *backend.Program, x []backend.Buffer) { p.RotateStore(x[0], x[1], x[2], stranger.heads(4), 0) },
	} {
		p, x := c.list()
		list(p, x)
		if err := p.Err(); err != nil {
			t.Fatalf("%s: %v", words, err)
		}
		if _, err := g.Compile(p); err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, want %q in one line", err, words)
		}
	}
	p, _ := c.list()
	p.Ops = slices.Concat(p.Ops, []backend.Op{{Kind: 77}})
	var lacks *backend.UnsupportedError
	if _, err := g.Compile(p); !errors.As(err, &lacks) || lacks.What != "operation 77" {
		t.Errorf("an operation that nobody has: %v", err)
	}
}

// runs is linear with runs that are cut each by itself.
func (c *cutWeights) runs(split backend.Split, runs ...int) backend.Linear {
	x := vectors.Tensor(c.r, backend.F32, cutWidth, cutWidth, 0)
	x.Split, x.Sections = split, runs
	m, err := c.b.Matrix(*x)
	if err != nil {
		c.t.Fatal(err)
	}
	return backend.Linear{Weight: m}
}

// grouped is a matrix of so many outputs in affine groups.
func (c *cutWeights) grouped(rows, group int, split backend.Split) backend.Matrix {
	x := vectors.Tensor(c.r, backend.Affine4, rows, cutWidth, group)
	x.Split = split
	m, err := c.b.Matrix(*x)
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

// run is a vector of n elements, which are cut as taps are where they are 192.
func (c *cutWeights) run(split backend.Split, n int) backend.Vector {
	x := vectors.Tensor(c.r, backend.F32, 1, n, 0)
	x.Shape, x.Split = []int{n}, split
	if n == 192 {
		x.Sections = []int{64, 64, 64}
	}
	v, err := c.b.Vector(*x)
	if err != nil {
		c.t.Fatal(err)
	}
	return v
}

// delta is of heads of 16, by key head in one buffer: q, k, v, z, then b and a in another.
func (c *cutWeights) delta(heads int, split backend.Split, wide, narrow backend.Buffer) backend.Delta {
	at := func(b backend.Buffer, first int) backend.Strided {
		return backend.Strided{Buffer: b, First: first, Stride: cutWidth / heads}
	}
	return backend.Delta{
		StateShape: backend.StateShape{KeyHeads: heads, ValueHeads: heads, KeyDim: 16, ValueDim: 16, Conv: 2},
		Q:          at(wide, 0), K: at(wide, 16), V: at(wide, 32), Z: at(wide, 48), B: at(narrow, 0), A: at(narrow, 1),
		Taps: c.run(split, 96*heads), LogDecay: c.run(split, heads), TimeStep: c.run(split, heads), Norm: c.run(backend.SplitNone, 16), Eps: 1e-6,
	}
}

// some is one matrix of each of two experts.
func (c *cutWeights) some(split backend.Split) []backend.Matrix {
	return []backend.Matrix{c.linear(split).Weight, c.linear(split).Weight}
}

// experts lists two experts and a shared one, cut so, and its weight.
func (c *cutWeights) experts(p *backend.Program, x []backend.Buffer, gate, down, sharedGate, sharedDown backend.Split, weight ...backend.Split) {
	matrix := func(rows int, split backend.Split) backend.Matrix {
		t := vectors.Tensor(c.r, backend.F32, rows, cutWidth, 0)
		t.Split = split
		m, err := c.b.Matrix(*t)
		if err != nil {
			c.t.Fatal(err)
		}
		return m
	}
	share := matrix(1, backend.SplitNone)
	if len(weight) > 0 {
		m := *share.(*groupMatrix) // one output cannot be cut: as if
		m.split = weight[0]
		share = &m
	}
	routing := p.Buffer(2)
	p.Route(routing, x[0], matrix(2, backend.SplitNone), 1, true)
	p.ExpertsAdd(x[1], x[0], routing, &backend.Experts{
		Gate: c.some(gate), Up: c.some(gate), Down: c.some(down),
		Shared: &backend.SharedExpert{Gate: c.linear(sharedGate).Weight, Up: c.linear(sharedGate).Weight, Down: c.linear(sharedDown).Weight, Weight: share},
	})
}

func (c *cutWeights) heads(n int) backend.Heads {
	return backend.Heads{KVHeads: n, HeadDim: cutWidth / n, Rotation: c.turn}
}
