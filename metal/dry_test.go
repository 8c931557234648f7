package metal

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/model"
	"windrow/synthetic"
)

// dryModel is a model of a published shape on a counting backend.
func dryModel(t *testing.T, shape string, dt backend.DType, exact bool) (*model.Model, *Dry) {
	t.Helper()
	config, ok := synthetic.ShapeConfig(shape)
	if !ok {
		t.Fatal(shape)
	}
	b := NewDry(exact)
	t.Cleanup(func() { b.Close() })
	m, err := model.Load(b, synthetic.EmptySource(config, dt))
	if err != nil {
		t.Fatal(err)
	}
	return m, b
}

// dryForward runs rows of each sequence over base tokens that count as there,
// and wants the results of all rows where they are few, or of the last.
func dryForward(t *testing.T, m *model.Model, sequences, base, rows int, kv backend.KVType) {
	t.Helper()
	b := new(model.Batch)
	for s := range sequences {
		c, err := m.NewCache(model.CacheOptions{Capacity: base + rows, MaxRows: rows, DType: kv})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Reserve(base); err != nil {
			t.Fatal(err)
		}
		c.Stage(base)
		if err := c.Commit(base); err != nil {
			t.Fatal(err)
		}
		b.Spans = append(b.Spans, model.Span{Cache: c, First: s * rows, Rows: rows})
		for i := range rows {
			b.Tokens = append(b.Tokens, int32(i))
			b.Positions = append(b.Positions, int32(base+7*i)) // as slots of a window: not in a row
			if rows <= invariantRows || i == rows-1 {
				b.Want = append(b.Want, model.Wanted{Row: int32(s*rows + i)})
			}
		}
	}
	if _, err := m.Forward(context.Background(), b); err != nil {
		t.Fatal(err)
	}
}

// A layer is at most 12 dispatches, and a step is submitted and waited for once.
func TestDispatchesAndOneSynchronisationPerStep(t *testing.T) {
	for _, c := range []struct {
		shape string
		dt    backend.DType
		exact bool
		kv    backend.KVType
	}{
		{"qwen3-1.7b", backend.BF16, false, backend.KVBF16},
		{"qwen3-8b", backend.Affine4, false, backend.KVBF16},
		{"qwen3-8b", backend.Q4_K, false, backend.KVInt8},
		{"qwen3-0.6b", backend.Affine8, true, backend.KVF32},
		{"qwen3-0.6b", backend.F16, false, backend.KVF32},
	} {
		m, b := dryModel(t, c.shape, c.dt, c.exact)
		for _, rows := range []int{1, 8, 16, 32, 512} {
			dryForward(t, m, 1, 512, rows, c.kv)
			n := b.Taken()
			if per := float64(n.InLayers) / float64(m.Config().Layers); per > 12 || n.Dispatches > n.InLayers+6 {
				t.Errorf("%+v, %d rows: %.1f dispatches a layer, %d besides", c, rows, per, n.Dispatches-n.InLayers)
			}
			if n.Submits != 1 && rows <= invariantRows {
				t.Errorf("%+v, %d rows: %d command buffers", c, rows, n.Submits)
			}
			if most := int(float64(n.FLOPs)/submitFLOPs) + 1; n.Submits > most {
				t.Errorf("%+v, %d rows: %d command buffers for %.2g operations", c, rows, n.Submits, float64(n.FLOPs))
			}
		}
	}
}

// touched is what a forward has to read and write, from the config alone:
// weights in wb bytes each, embedding and head in bf16, activations in the types
// of docs/metal.md.
func touched(c *checkpoint.Config, wb float64, rows, context, wanted int) float64 {
	h, q, k, v := float64(c.HiddenSize), float64(c.Heads*c.HeadDim), float64(c.KVHeads*c.HeadDim), float64(c.VocabSize)
	mlp, n := float64(c.IntermediateSize), float64(rows)
	layer := wb * (h*(q+2*k) + q*h + 3*h*mlp)
	layer += 2 * 2 * k * float64(context+rows) // keys and values in bf16 that attention reads
	layer += n * 2 * 2 * k                     // those that are stored
	layer += n * (2*(4*h+2*h) +                // norms
		2*h + 4*(q+2*k) + 4*(q+2*k) + 2*q + // q, k, v, rotated
		2*q + 2*q + // attention
		2*q + 8*h + 2*h + 2*mlp + 2*mlp + 8*h) // output, gated, down
	head := 2*v*h + float64(wanted)*(4*h+2*h+2*h+4*v+4*v)
	return float64(c.Layers)*layer + head + n*(2*h+4*h)
}

// What the dispatches say they move is what the step must touch, to 3 %.
func TestBytesAreThoseOfTheStep(t *testing.T) {
	for _, c := range []struct {
		shape string
		dt    backend.DType
		bytes float64 // of a weight
	}{
		{"qwen3-0.6b", backend.BF16, 2},
		{"qwen3-1.7b", backend.Affine4, 0.5 + 4.0/64},
		{"qwen3-8b", backend.Affine4, 0.5 + 4.0/64},
		{"qwen3-8b", backend.Q6_K, 210.0 / 256},
	} {
		m, b := dryModel(t, c.shape, c.dt, false)
		for _, rows := range []int{1, 8, 16, 32, 512} {
			context, wanted := 512, rows
			if rows > invariantRows {
				context, wanted = 0, 1
			}
			dryForward(t, m, 1, context, rows, backend.KVBF16)
			n := b.Taken()
			want := touched(m.Config(), c.bytes, rows, context, wanted)
			if got := float64(n.Read + n.Written); math.Abs(got/want-1) > 0.03 {
				t.Errorf("%s %v, %d rows: %.4g bytes, the step touches %.4g", c.shape, c.dt, rows, got, want)
			}
			if flops := 2 * float64(rows) * float64(perRow(m.Config())); float64(n.FLOPs) < flops {
				t.Errorf("%s %v, %d rows: %.4g operations, weights alone need %.4g", c.shape, c.dt, rows, float64(n.FLOPs), flops)
			}
		}
	}
}

// perRow is the weights of the layers.
func perRow(c *checkpoint.Config) int {
	q, k := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	return c.Layers * (c.HiddenSize*(2*q+2*k) + 3*c.HiddenSize*c.IntermediateSize)
}

// activations are the arguments of a kernel that are activations: the types
// that the residual stream, q, k, v and logits have, and those of what
// projections and attention read.
var activations = []struct {
	kernel     string
	f32, small []int
}{
	{"embed_", []int{0}, nil},
	{"rms_norm_", []int{1, 2}, []int{0}},
	{"rotate_store_", []int{1, 2, 3, 4, 5, 6}, []int{0}},
	{"attend_merge_", []int{1}, []int{0}},
	{"attend_", nil, []int{0, 1}},
	{"project_add", nil, []int{0}},
	{"row_", nil, nil},
}

// Each intermediate has the type that docs/metal.md gives it: bf16 where a
// product reads it, f32 where sums are kept, f32 everywhere in exact.
func TestTypesNeverWiden(t *testing.T) {
	for _, c := range []struct {
		dt    backend.DType
		exact bool
		kv    backend.KVType
		small elem
	}{
		{backend.BF16, false, backend.KVBF16, elemBF16},
		{backend.Affine4, false, backend.KVInt8, elemBF16},
		{backend.Q4_K, false, backend.KVBF16, elemBF16},
		{backend.Affine4, true, backend.KVF32, elemF32},
		{backend.BF16, true, backend.KVF32, elemF32},
	} {
		for _, rows := range []int{1, 16, 100} {
			m, b := dryModel(t, "qwen3-0.6b", c.dt, c.exact)
			dryForward(t, m, 1, 40, rows, c.kv)
			what := fmt.Sprintf("%v, exact %v, %d rows", c.dt, c.exact, rows)
			seen := map[string]int{}
			for _, d := range b.memory.log {
				if strings.HasPrefix(d.kernel, "convert_") || strings.HasPrefix(d.kernel, "gate_") {
					t.Errorf("%s: %s is dispatched: a form that nobody should need", what, d.kernel)
				}
				if strings.HasPrefix(d.file, "project_") {
					seen["project"]++
					checkElem(t, what, d, 0, c.small)
					continue
				}
				for _, a := range activations {
					if strings.HasPrefix(d.kernel, a.kernel) {
						seen[a.kernel]++
						for _, i := range a.f32 {
							checkElem(t, what, d, i, elemF32)
						}
						for _, i := range a.small {
							checkElem(t, what, d, i, c.small)
						}
						break
					}
				}
			}
			layers := m.Config().Layers
			if seen["rms_norm_"] != 2*layers+1 || seen["project"] != 4*layers+1 || seen["rotate_store_"] != layers || seen["attend_"] != layers {
				t.Errorf("%s: dispatches %v", what, seen)
			}
		}
	}
}

func checkElem(t *testing.T, what string, d dispatch, i int, want elem) {
	t.Helper()
	if got := d.args[i].view.elem; got != want {
		t.Errorf("%s: argument %d of %s is %s, want %s", what, i, d.kernel, got.name(), want.name())
	}
}

// Projections write f32 but for the gated product, whose type the next reads.
func TestProjectionsWriteTheirTypes(t *testing.T) {
	m, b := dryModel(t, "qwen3-0.6b", backend.Affine4, false)
	dryForward(t, m, 1, 40, 16, backend.KVBF16)
	kinds := map[string]int{}
	for _, d := range b.memory.log {
		if strings.HasPrefix(d.file, "project_") {
			kinds[d.args[13].view.elem.name()]++ // the first of three targets
		}
	}
	layers := m.Config().Layers
	if kinds["bf16"] != layers || kinds["f32"] != 3*layers+1 {
		t.Errorf("targets of projections: %v", kinds)
	}
}

// Weights in f16 and f32 are not narrowed to bf16: their projections read f32
// and attention's own types stay.
func TestFloatWeightsKeepF32(t *testing.T) {
	m, b := dryModel(t, "qwen3-0.6b", backend.F16, false)
	dryForward(t, m, 1, 40, 16, backend.KVF32)
	for _, d := range b.memory.log {
		if strings.HasPrefix(d.file, "project_") {
			checkElem(t, "f16", d, 0, elemF32)
		}
	}
}

// Rows of any positions are rotated in one dispatch a span and layer.
func TestPerRowRoPEIsOneDispatch(t *testing.T) {
	m, b := dryModel(t, "qwen3-0.6b", backend.BF16, false)
	for _, sequences := range []int{1, 8} {
		dryForward(t, m, sequences, 40, 16, backend.KVBF16)
		n := 0
		for _, d := range b.memory.log {
			if strings.HasPrefix(d.kernel, "rotate_") {
				n++
			}
		}
		if want := sequences * m.Config().Layers; n != want {
			t.Errorf("%d sequences: %d rotations, want %d", sequences, n, want)
		}
		b.Taken()
	}
}

// With layers in 4 bits the embedding and the head stay bf16, whatever reads
// them.
func TestHeadAndEmbeddingInBF16Under4Bit(t *testing.T) {
	for _, shape := range []string{"qwen3-0.6b", "qwen3-8b"} { // tied, untied
		m, b := dryModel(t, shape, backend.Affine4, false)
		dryForward(t, m, 1, 40, 16, backend.KVBF16)
		files := map[string]int{}
		for _, d := range b.memory.log {
			if strings.HasPrefix(d.kernel, "embed_") && d.kernel != "embed_bf16" {
				t.Errorf("%s: %s", shape, d.kernel)
			}
			files[d.file]++
		}
		if files["project_bf16"] != 1 || files["project_affine4"] != 4*m.Config().Layers {
			t.Errorf("%s: dispatches by file %v", shape, files)
		}
	}
}

// Single rows are multiplied by the kernels of their own only where batch
// invariance is given up, and windows never.
func TestMatvecIsForSingleRows(t *testing.T) {
	defer useMatvec.Store(useMatvec.Load())
	for _, on := range []bool{false, true} {
		useMatvec.Store(on)
		m, b := dryModel(t, "qwen3-0.6b", backend.Affine4, false)
		for _, rows := range []int{1, 2, 16, 100} {
			dryForward(t, m, 1, 40, rows, backend.KVBF16)
			matvecs := 0
			for _, d := range b.memory.log {
				if strings.HasPrefix(d.kernel, "matvec_") {
					matvecs++
				}
			}
			want := 0
			switch {
			case on && rows == 1:
				want = 4*m.Config().Layers + 1
			case on && rows == 100: // a prompt's last row alone goes through the head
				want = 1
			}
			if matvecs != want {
				t.Errorf("matvec %v, %d rows: %d of them, want %d", on, rows, matvecs, want)
			}
			b.Taken()
		}
		if got := strings.HasSuffix(b.Features().Kernels, "matvec"); got != on {
			t.Errorf("matvec %v: kernels %s", on, b.Features().Kernels)
		}
	}
}
