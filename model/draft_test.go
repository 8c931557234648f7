package model_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/conformance/backendtest"
	"windrow/cpu"
	"windrow/model"
	"windrow/quant"
)

const goldenFolder = "testdata/golden"

func exactCPU(t *testing.T) *cpu.Backend {
	t.Helper()
	b, err := cpu.New(cpu.Options{Exact: true, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// TestDraftHeadGolden: the head's logits are those of a reference, in forwards of any
// number of rows.
func TestDraftHeadGolden(t *testing.T) {
	backendtest.RunHead(t, goldenFolder, exactCPU(t), "tiny-gsm-next", "qwen3-5-drafts", "qwen3-5-moe-tiny")
}

// TestDraftHeadFaults plants wrong readings of a head: each shows in the golden logits.
func TestDraftHeadFaults(t *testing.T) {
	const name, hidden = "qwen3-5-drafts", 64
	src := backendtest.Source(t, goldenFolder, name)
	final, ok := src.Tensor("model.norm.weight")
	if !ok {
		final, ok = src.Tensor("model.language_model.norm.weight")
	}
	if !ok || src.Config().HiddenSize != hidden {
		t.Fatal("another model than this test is for")
	}
	weights, err := quant.Vector(final)
	if err != nil {
		t.Fatal(err)
	}
	rows := func(b *model.DraftBatch, change func(r int, state []float32)) {
		for r := range b.Tokens {
			change(r, b.Hidden[r*hidden:(r+1)*hidden])
		}
	}
	for _, f := range []struct {
		name   string
		tensor func(name string, rows [][]float32)
		batch  func(b *model.DraftBatch)
	}{
		{name: "nothing"},
		{name: "the halves of fc swapped", tensor: func(name string, rows [][]float32) {
			if strings.HasSuffix(name, "mtp.fc.weight") {
				for _, r := range rows {
					for i := range hidden {
						r[i], r[hidden+i] = r[hidden+i], r[i]
					}
				}
			}
		}},
		{name: "norms before fc as w, not 1 + w", tensor: func(name string, rows [][]float32) {
			if strings.Contains(name, "mtp.pre_fc_norm") {
				for _, r := range rows {
					r[0]--
				}
			}
		}},
		{name: "the last norm without weights", tensor: func(name string, rows [][]float32) {
			if name == "mtp.norm.weight" {
				for _, r := range rows {
					r[0] = 0
				}
			}
		}},
		{name: "the state before the final norm", batch: func(b *model.DraftBatch) {
			rows(b, func(_ int, state []float32) {
				for i := range state {
					state[i] /= weights[i]
				}
			})
		}},
		{name: "the state of the position before", batch: func(b *model.DraftBatch) {
			was := slices.Clone(b.Hidden)
			copy(b.Hidden[hidden:], was)
		}},
		{name: "the token at the position, not the one behind it", batch: func(b *model.DraftBatch) {
			copy(b.Tokens[1:], slices.Clone(b.Tokens))
		}},
		{name: "no states", batch: func(b *model.DraftBatch) { clear(b.Hidden) }},
	} {
		relative, equal, n := backendtest.HeadLogits(t, goldenFolder, &spoiled{src, f.tensor}, exactCPU(t), name, 1000, f.batch, model.DraftHead(0))
		t.Logf("%s: %.2g, argmax %d of %d", f.name, relative, equal, n)
		if shown := relative > 5e-6; shown != (f.name != "nothing") {
			t.Errorf("%s: relative norm %.3g", f.name, relative)
		}
	}
}

// TestValidateHead: a golden file's logits of the head are compared with it, whatever
// copies it drafts with; a fault in the head shows there, and nowhere else. Without the
// head they are named as what was not compared.
func TestValidateHead(t *testing.T) {
	swap := func(name string, rows [][]float32) {
		if strings.HasSuffix(name, "mtp.fc.weight") {
			for _, r := range rows {
				half := slices.Clone(r[:len(r)/2])
				copy(r, r[len(r)/2:])
				copy(r[len(r)/2:], half)
			}
		}
	}
	for _, name := range []string{"tiny-gsm-next", "qwen3-5-drafts", "qwen3-5-moe-tiny"} {
		data, err := os.ReadFile(filepath.Join(goldenFolder, name, "golden.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		golden, err := checkpoint.ReadSafetensors(data)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			what   string
			change func(name string, rows [][]float32)
			o      []model.Option
		}{
			{"a head", nil, []model.Option{model.DraftHead(0)}},
			{"a head that drafts with a copy", nil, []model.Option{model.DraftHead(4)}},
			{"a wrong head", swap, []model.Option{model.DraftHead(0)}},
			{"no head", nil, nil},
		} {
			m, err := model.Load(exactCPU(t), &spoiled{backendtest.Source(t, goldenFolder, name), c.change}, c.o...)
			if err != nil {
				t.Fatal(err)
			}
			deviations, err := m.Validate(t.Context(), golden, model.ValidateOptions{KV: backend.KVF32, Chunk: 17, PerToken: true})
			if err != nil {
				t.Fatal(err)
			}
			heads := 0
			for _, d := range deviations {
				head := strings.HasPrefix(d.Entry, "mtp.logits")
				if head {
					heads++
				}
				if wrong := head && c.change != nil; wrong != !(d.RelativeNorm <= 5e-6) || wrong && d.RelativeNorm < 1e-2 {
					t.Errorf("%s, %s: %+v", name, c.what, d)
				}
			}
			left := model.NotCompared(golden, deviations)
			if c.o == nil && (heads != 0 || !slices.Equal(left, []string{"mtp.logits"})) || c.o != nil && (heads != 2 || left != nil) {
				t.Errorf("%s, %s: the head was compared %d times, not compared: %q", name, c.what, heads, left)
			}
			m.Close()
		}
	}
}

// spoiled is a source whose tensors are changed on their way.
type spoiled struct {
	checkpoint.Source
	change func(name string, rows [][]float32)
}

func (s *spoiled) Tensor(name string) (backend.Tensor, bool) {
	t, ok := s.Source.Tensor(name)
	if !ok || s.change == nil || !strings.HasPrefix(name, "mtp.") || len(t.Shape) > 2 {
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
	s.change(name, rows)
	t.DType, t.Data = backend.F32, make([]byte, 4*len(values))
	quant.Blocks(t.Data, backend.F32, values)
	return t, ok
}

// TestDraftHeadBeside: see backendtest.RunHeadBeside; and what cannot be is refused.
func TestDraftHeadBeside(t *testing.T) {
	b, src := exactCPU(t), backendtest.Source(t, goldenFolder, "qwen3-5-moe-tiny")
	backendtest.RunHeadBeside(t, b, src, 120)
	load := func(o ...model.Option) *model.Model {
		m, err := model.Load(b, src, o...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		return m
	}
	plain, m := load(), load(model.DraftHead(4))
	ids, state := []int32{3}, make([]float32, src.Config().HiddenSize)
	c, err := m.NewCache(model.CacheOptions{Capacity: 8, MaxRows: 8, DType: backend.KVF32})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// What cannot be: one line, and nothing is run.
	for what, bad := range map[string]*model.DraftBatch{
		"no rows":              {},
		"no states":            {Tokens: ids, Spans: []model.DraftSpan{{Cache: c, Rows: 1}}},
		"a token":              {Tokens: []int32{-1}, Hidden: state, Spans: []model.DraftSpan{{Cache: c, Rows: 1}}},
		"a position":           {Tokens: ids, Hidden: state, Spans: []model.DraftSpan{{Cache: c, At: 9999, Rows: 1}}},
		"no cache":             {Tokens: ids, Hidden: state, Spans: []model.DraftSpan{{Rows: 1}}},
		"rows without a span":  {Tokens: ids, Hidden: state},
		"a span of other rows": {Tokens: ids, Hidden: state, Spans: []model.DraftSpan{{Cache: c, First: 1, Rows: 1}}},
	} {
		if _, err := m.Draft(t.Context(), bad); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v", what, err)
		}
	}
	if _, err := plain.Draft(t.Context(), &model.DraftBatch{}); !errors.Is(err, model.ErrNoDraftHead) {
		t.Errorf("without a head: %v", err)
	}
	if err := c.KeepDrafts(c.Base() + 1); err == nil {
		t.Error("the head has more than is permanent")
	}
}

// TestBrokenDraftHead: a head that cannot be loaded is an error, or left out with the
// reason; a context that ends is no such reason.
func TestBrokenDraftHead(t *testing.T) {
	const at = "mtp.layers.0.self_attn."
	remove := func(name string) func(*form) { return func(f *form) { delete(f.tensors, name) } }
	nan := func(name string) func(*form) {
		return func(f *form) {
			r := f.tensors[name]
			r.Data = slices.Clone(r.Data)
			r.Data[0], r.Data[1] = 0xc0, 0x7f // in bf16
			f.tensors[name] = r
		}
	}
	for _, c := range []struct {
		model, what string
		change      func(*form)
		want        string
	}{
		{"qwen3-5-drafts", "no fc", remove("mtp.fc.weight"), "tensor mtp.fc.weight is missing"},
		{"qwen3-5-drafts", "a projection too few", remove(at + "k_proj.weight"), "tensor " + at + "k_proj.weight is missing"},
		{"qwen3-5-drafts", "a norm that is no number", nan("mtp.norm.weight"), "tensor mtp.norm.weight: element 0 is NaN, want a finite number"},
		{"qwen3-5-drafts", "fc of another shape", func(f *form) {
			r := f.tensors["mtp.fc.weight"]
			r.Shape = []int{r.Shape[1], r.Shape[0]}
			f.tensors["mtp.fc.weight"] = r
		}, "tensor mtp.fc.weight: shape [128 64], the config says [64 128]"},
		{"qwen3-5-moe-tiny", "a router that is no number", nan("mtp.layers.0.mlp.gate.weight"), "tensor mtp.layers.0.mlp.gate.weight: element [0 0] is NaN, want a finite number"},
	} {
		want := logitsOf(t, goldenForm(t, c.model).open(t), true)
		f := goldenForm(t, c.model)
		c.change(f)
		src, b := f.open(t), exactCPU(t)
		if _, err := model.Load(b, src, model.DraftHead(0)); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.what, err, c.want)
		}
		why := ""
		m, err := model.Load(b, src, model.DraftHead(0), model.HeadMayFail(func(err error) { why += err.Error() }))
		if err != nil || m.Drafts() || why != c.want {
			t.Fatalf("%s: %v, left out for %q, want %q", c.what, err, why, c.want)
		}
		m.Close()
		sameBits(t, c.what, logitsOf(t, src, true), want)
		ctx, stop := context.WithCancel(t.Context())
		why = ""
		if _, err := model.LoadContext(ctx, b, &ending{src, stop}, model.DraftHead(0), model.HeadMayFail(func(err error) { why += err.Error() })); err == nil || why != "" {
			t.Errorf("%s, a context that ended: %v, left out for %q", c.what, err, why)
		}
	}
}

// ending is a source whose tensors of the head end a context.
type ending struct {
	checkpoint.Source
	stop func()
}

func (e *ending) Tensor(name string) (backend.Tensor, bool) {
	if strings.HasPrefix(name, "mtp.") {
		e.stop()
	}
	return e.Source.Tensor(name)
}

// hideless is a backend whose results bring no hidden states.
type hideless struct{ backend.Backend }

func (h hideless) Features() backend.Features {
	f := h.Backend.Features()
	f.HiddenRows = false
	return f
}

// TestDraftHeadRefused: a backend that brings no hidden states loads the model without
// its head, or refuses in one line.
func TestDraftHeadRefused(t *testing.T) {
	b := hideless{exactCPU(t)}
	src := backendtest.Source(t, goldenFolder, "qwen3-5-drafts")
	var lacks *backend.UnsupportedError
	if _, err := model.Load(b, src, model.DraftHead(0)); !errors.As(err, &lacks) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
	m, err := model.Load(b, src)
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
}
