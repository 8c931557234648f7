package model_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/conformance/backendtest"
	"windrow/cpu"
	"windrow/model"
)

const goldenFolder = "testdata/golden"

// headLogits runs a model over a golden prompt and its head for drafts over what that
// gives, in forwards of chunk rows, and compares the head's logits with the golden ones.
func headLogits(t *testing.T, src checkpoint.Source, b backend.Backend, name string, chunk int, spoil func(b *model.DraftBatch), o ...model.Option) (relative float64, equal, rows int) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(goldenFolder, name, "golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	golden, err := checkpoint.ReadSafetensors(data)
	if err != nil {
		t.Fatal(err)
	}
	entry, ok := golden.Lookup("mtp.logits")
	if !ok {
		t.Fatal("no logits of the head")
	}
	want, err := entry.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	entry, _ = golden.Lookup("prompt.ids")
	ids, err := entry.Int32s()
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(b, src, o...)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c, err := m.NewCache(model.CacheOptions{Capacity: len(ids), MaxRows: len(ids), DType: backend.KVF32})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	pairs := len(ids) - 1
	trunk := &model.Batch{Tokens: ids[:pairs], Spans: []model.Span{{Cache: c, Rows: pairs}}}
	for i := range pairs {
		trunk.Positions = append(trunk.Positions, int32(i))
		trunk.Want = append(trunk.Want, model.Wanted{Row: int32(i), Hidden: true, Bare: true})
	}
	states, err := m.Forward(t.Context(), trunk)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Commit(pairs); err != nil {
		t.Fatal(err)
	}
	var logits []float32
	for from := 0; from < pairs; from += chunk {
		n := min(chunk, pairs-from)
		d := &model.DraftBatch{Tokens: slices.Clone(ids[from+1 : from+1+n]), Spans: []model.DraftSpan{{Cache: c, At: from, Rows: n}}}
		for i := range n {
			if s := states[from+i]; s.Argmax != -1 || s.Logits != nil {
				t.Fatalf("a bare row brings %+v", s)
			}
			d.Hidden = append(d.Hidden, states[from+i].Hidden...)
			d.Want = append(d.Want, model.Wanted{Row: int32(i), Logits: true})
		}
		if spoil != nil {
			spoil(d)
		}
		results, err := m.Draft(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			logits = append(logits, r.Logits...)
		}
	}
	if len(logits) != len(want) {
		t.Fatalf("%d logits, want %d", len(logits), len(want))
	}
	width := len(want) / pairs
	var difference, norm float64
	for i, w := range want {
		difference += float64(logits[i]-w) * float64(logits[i]-w)
		norm += float64(w) * float64(w)
	}
	best := func(x []float32) int { return slices.Index(x, slices.Max(x)) }
	for r := range pairs {
		if best(logits[r*width:(r+1)*width]) == best(want[r*width:(r+1)*width]) {
			equal++
		}
	}
	return math.Sqrt(difference / norm), equal, pairs
}

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
	for _, name := range []string{"tiny-gsm-next", "qwen3-5-drafts", "qwen3-5-moe-tiny"} {
		for _, chunk := range []int{1000, 7, 1} {
			relative, equal, rows := headLogits(t, backendtest.Source(t, goldenFolder, name), exactCPU(t), name, chunk, nil, model.DraftHead(0))
			t.Logf("%s, %d rows a forward: %.2g, argmax %d of %d", name, chunk, relative, equal, rows)
			if !(relative <= 5e-6) || equal != rows {
				t.Errorf("%s, %d rows a forward: relative norm %.3g, argmax equal in %d of %d rows", name, chunk, relative, equal, rows)
			}
		}
	}
}
