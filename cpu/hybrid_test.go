package cpu_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/conformance/backendtest"
	"windrow/conformance/decodertest"
	"windrow/cpu"
	"windrow/cpu/kernels"
	"windrow/model"
	"windrow/quant"
)

const goldenFolder = "../model/testdata/golden"

// TestHybridAnswers: the trained hybrid gives the reference's answers, and verified's are
// ar's.
func TestHybridAnswers(t *testing.T) {
	problems := 6
	if os.Getenv("CI") != "" {
		problems = 32
	}
	if testing.Short() {
		problems = 1
	}
	for _, exact := range []bool{true, false} {
		b, err := cpu.New(cpu.Options{Exact: exact, Threads: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		decodertest.RunHybrid(t, goldenFolder, b, problems)
	}
}

// spoiled is a source whose config and tensors are changed on their way.
type spoiled struct {
	checkpoint.Source
	config *checkpoint.Config
	tensor func(name string, rows [][]float32) // rows of a tensor, widened
}

func (s *spoiled) Config() *checkpoint.Config { return s.config }

func (s *spoiled) Tensor(name string) (backend.Tensor, bool) {
	t, ok := s.Source.Tensor(name)
	if !ok || s.tensor == nil || t.Make != nil {
		return t, ok
	}
	flat := t
	flat.Shape = []int{t.Elements()}
	values, err := quant.Vector(flat)
	if err != nil {
		return t, ok
	}
	width := len(values) / t.Shape[0]
	var rows [][]float32
	for r := range t.Shape[0] {
		rows = append(rows, values[r*width:(r+1)*width])
	}
	s.tensor(name, rows)
	var data []byte
	for _, row := range rows {
		for _, v := range row {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
	}
	t.DType, t.Data = backend.F32, data
	return t, ok
}

// listing changes programs before they are compiled.
type listing struct {
	*cpu.Backend
	change func(o *backend.Op)
}

func (l *listing) Compile(p *backend.Program) (backend.Forward, error) {
	if l.change != nil {
		for i := range p.Ops {
			l.change(&p.Ops[i])
		}
	}
	return l.Backend.Compile(p)
}

// fault is a wrong reading of a hybrid.
type fault struct {
	name string
	// early is the relative error of the logits of a prompt's first rows.
	early  float64
	config func(c *checkpoint.Config)
	tensor func(name string, rows [][]float32)
	op     func(o *backend.Op)
	kernel func(k *kernels.Table)
}

// TestHybridFaults plants the wrong readings that engines have had: the golden model's
// logits show each of them, of the first 10 rows by as much as a reference in float64 that
// had the same wrong readings.
func TestHybridFaults(t *testing.T) {
	const heads, dim, valueDim, early = 4, 64, 32, 10
	onDelta := func(change func(d *backend.Delta)) func(o *backend.Op) {
		return func(o *backend.Op) {
			if o.Kind == backend.OpDelta {
				d := *o.Delta
				change(&d)
				o.Delta = &d
			}
		}
	}
	// A unit vector's factor tells what it was: scale/√(Σ+ε).
	unit := func(of func(squares float64) float64) func(k *kernels.Table) {
		return func(k *kernels.Table) {
			scale := k.Scale
			k.Scale = func(x []float32, s float32) {
				sum := float64(k.SumSquares(x))
				for _, c := range []float64{1, 1 / math.Sqrt(float64(len(x)))} {
					if math.Abs(float64(s)*math.Sqrt(sum+backend.DeltaEps)/c-1) < 1e-6 {
						s = float32(c / of(sum))
						break
					}
				}
				scale(x, s)
			}
		}
	}
	faults := []fault{
		{name: "nothing"},
		{name: "weights of experts that do not sum up to 1", early: 0.35, op: func(o *backend.Op) { o.Renormalise = false }},
		{name: "no gate of the shared expert", early: 0.50, tensor: func(name string, rows [][]float32) {
			if strings.HasSuffix(name, "shared_expert_gate.weight") {
				clear(rows[0]) // whose sigmoid is a half
			}
			if strings.HasSuffix(name, "shared_expert.down_proj.weight") {
				for _, r := range rows {
					for i := range r {
						r[i] *= 2
					}
				}
			}
		}},
		{name: "queries and gates as halves", early: 0.45, tensor: func(name string, rows [][]float32) {
			if !strings.HasSuffix(name, "q_proj.weight") {
				return
			}
			was := append([][]float32(nil), rows...)
			for h := range heads {
				for i := range dim {
					rows[2*h*dim+i], rows[(2*h+1)*dim+i] = was[h*dim+i], was[(heads+h)*dim+i]
				}
			}
		}},
		{name: "value heads tiled", early: 0.67, op: onDelta(func(d *backend.Delta) { d.Tiled = true })},
		{name: "the convolution reversed", early: 0.79, tensor: func(name string, rows [][]float32) {
			if strings.HasSuffix(name, "conv1d.weight") {
				for _, r := range rows {
					r[0], r[1], r[2], r[3] = r[3], r[2], r[1], r[0]
				}
			}
		}},
		{name: "all of a head rotated", early: 0.27, config: func(c *checkpoint.Config) { c.Rope.HeadDim = c.HeadDim }},
		{name: "queries not scaled", early: 0.61, op: func(o *backend.Op) { // the norm behind takes it back, but for its ε
			if o.Kind == backend.OpDelta {
				o.Eps /= 32
			}
		}},
		{name: "the gated norm as 1 + w", early: 0.57, tensor: func(name string, rows [][]float32) {
			if strings.HasSuffix(name, "linear_attn.norm.weight") {
				for _, r := range rows {
					r[0]++
				}
			}
		}},
		{name: "the gate before the norm", early: 0.19, kernel: func(k *kernels.Table) {
			times, silu := k.ScaleMul, k.SiluMul
			var weights []float32
			k.ScaleMul = func(dst, x, w []float32, s float32) {
				if weights = w; len(dst) != valueDim {
					times(dst, x, w, s)
				}
			}
			k.SiluMul = func(dst, gate, up []float32) {
				silu(dst, gate, up)
				if &dst[0] != &up[0] {
					return
				}
				for ; len(dst) >= valueDim; dst = dst[valueDim:] { // head by head
					head := dst[:valueDim]
					mean := float64(k.SumSquares(head)) / valueDim
					times(head, head, weights, float32(1/math.Sqrt(mean+1e-6)))
				}
			}
		}},
		{name: "b and a swapped", early: 0.47, op: onDelta(func(d *backend.Delta) { d.A, d.B = d.B, d.A })},
		{name: "the delta before the decay", early: 0.032, kernel: func(k *kernels.Table) {
			fold := k.DeltaFold
			k.DeltaStep = func(s, q, key, v, d, o []float32, alpha, beta float32) {
				n := len(v)
				for c := range d {
					sum := float32(0)
					for i := range key {
						sum += s[i*n+c] * key[i]
					}
					d[c] = beta * (v[c] - sum)
				}
				fold(s, s, key, d, alpha)
				clear(o)
				for i := range key {
					for c := range o {
						o[c] += s[i*n+c] * q[i]
					}
				}
			}
		}},
		{name: "the larger of norm and ε", early: 2e-5, kernel: unit(func(squares float64) float64 { return max(math.Sqrt(squares), 1e-6) })},
		{name: "ε of a mean", early: 6.5e-4, kernel: unit(func(squares float64) float64 { return math.Sqrt(squares + 32*1e-6) })},
	}
	data, err := os.ReadFile(filepath.Join(goldenFolder, "qwen3-next-tiny", "golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	golden, err := checkpoint.ReadSafetensors(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		b, err := cpu.New(cpu.Options{Exact: true, Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		if f.kernel != nil {
			cpu.Spoil(b, func(k *kernels.Table) {
				// What takes several rows at once would go on without the fault.
				k.NormRows, k.AddRows, k.TapsRows, k.FoldRows, k.DeltaRows, k.GateDiv = nil, nil, nil, nil, nil, nil
				f.kernel(k)
			})
		}
		src := backendtest.Source(t, goldenFolder, "qwen3-next-tiny")
		config := *src.Config()
		if f.config != nil {
			f.config(&config)
		}
		m, err := model.Load(&listing{b, f.op}, &spoiled{src, &config, f.tensor})
		if err != nil {
			t.Fatal(err)
		}
		show := func(d model.Deviation, ours, want []float32) {
			if d.Entry != "prompt.logits" {
				return
			}
			first := early * len(want) / d.Rows
			relative := distance(ours[:first], want[:first])
			t.Logf("%s: %.2g, argmax %d of %d; of the first rows %.3g", f.name, d.RelativeNorm, d.ArgmaxEqual, d.Rows, relative)
			if shown := d.RelativeNorm > 5e-6; shown != (f.name != "nothing") {
				t.Errorf("%s: relative norm %.3g", f.name, d.RelativeNorm)
			}
			if math.Abs(relative-f.early) > 5e-6+0.05*f.early {
				t.Errorf("%s: relative norm %.3g of the first rows, want %.3g", f.name, relative, f.early)
			}
		}
		if _, err := m.Validate(t.Context(), golden, model.ValidateOptions{KV: backend.KVF32, Show: show}); err != nil {
			t.Fatal(err)
		}
		m.Close()
	}
}

// distance is |x − y| / |y|.
func distance(x, y []float32) float64 {
	var off, norm float64
	for i, w := range y {
		off += (float64(x[i]) - float64(w)) * (float64(x[i]) - float64(w))
		norm += float64(w) * float64(w)
	}
	return math.Sqrt(off / norm)
}

// TestHybridThreads: with any number of workers a hybrid has the same bits, whether a head's
// recurrence is one item or several, whether the shared expert is listed (few rows) or not, and
// whether workers take rows or columns.
func TestHybridThreads(t *testing.T) {
	sameStates(t, goldenFolder, "qwen3-next-long", "")
	sameStates(t, goldenFolder, "qwen3-5-moe-tiny", "")
	for _, table := range cpu.KernelTables() {
		if table != "go" { // which takes too long
			sameStates(t, "../models", "tinygsmnext", table)
		}
	}
}

// sameStates compares what a model makes with some workers and with one.
func sameStates(t *testing.T, folder, name, table string) {
	t.Helper()
	want := hybridStates(t, folder, name, cpu.Options{Threads: 1, Kernels: table})
	for _, threads := range []int{2, 3, 4, 5, 7} {
		got := hybridStates(t, folder, name, cpu.Options{Threads: threads, Kernels: table})
		for i := range want {
			if !slices.Equal(got[i], want[i]) {
				t.Errorf("%s %s: states %d of %d threads have other bits than of 1", name, table, i, threads)
			}
		}
	}
}

// hybridStates are the hidden states of forwards of many, several and one row of a sequence,
// and of two sequences at once.
func hybridStates(t *testing.T, folder, name string, o cpu.Options) (states [][]float32) {
	t.Helper()
	b, err := cpu.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	m, err := model.Load(b, backendtest.Source(t, folder, name))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var caches []*model.Cache
	for range 2 {
		c, err := m.NewCache(model.CacheOptions{Capacity: 120, MaxRows: 70, DType: backend.KVBF16})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		caches = append(caches, c)
	}
	for _, rows := range [][]int{{70}, {24}, {1}, {0, 9}, {5, 3}, {1, 1}} {
		batch := &model.Batch{Hidden: func(_ int, s []float32) { states = append(states, s) }}
		for i, n := range rows {
			if n == 0 {
				continue
			}
			batch.Spans = append(batch.Spans, model.Span{Cache: caches[i], First: len(batch.Tokens), Rows: n})
			for at := caches[i].Base(); n > 0; n, at = n-1, at+1 {
				batch.Tokens = append(batch.Tokens, int32((at*13+i)%50))
				batch.Positions = append(batch.Positions, int32(at))
			}
		}
		if _, err := m.Forward(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		for _, s := range batch.Spans {
			if err := s.Cache.Commit(s.Rows); err != nil {
				t.Fatal(err)
			}
		}
	}
	return states
}
